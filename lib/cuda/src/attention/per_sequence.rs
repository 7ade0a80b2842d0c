//! Attention on a CPU: libtorch's fused attention for each sequence.

use tch::Tensor;

use crate::CudaError;
use crate::device_batch::DeviceBatch;

/// See [`attend`](super::attend).
pub(super) fn forward(qkv: &Tensor, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
    let (tokens, _, heads, head_dim) = qkv.size4()?;
    // Rows outside of all sequences stay zero.
    let mixed = Tensor::f_zeros([tokens, heads, head_dim], (qkv.f_kind()?, qkv.device()))?;
    for span in batch.varlen.spans() {
        let (start, length) = (span.start as i64, span.len() as i64);
        let own = qkv.f_narrow(0, start, length)?.f_permute([1, 2, 0, 3])?; // (3, heads, length, head_dim)
        let part = |i| own.f_narrow(0, i, 1); // (1, heads, length, head_dim)
        // The default scale is head_dim^-0.5, applied to the scores in f32.
        let attended = Tensor::f_scaled_dot_product_attention(
            &part(0)?,
            &part(1)?,
            &part(2)?,
            None::<Tensor>,
            0.0,
            false,
            None,
            false,
        )?; // (1, heads, length, head_dim)
        let by_token = attended.f_squeeze_dim(0)?.f_transpose(0, 1)?; // (length, heads, head_dim)
        mixed.f_narrow(0, start, length)?.f_copy_(&by_token)?;
    }
    Ok(mixed.f_view([tokens, heads * head_dim])?)
}

#[cfg(test)]
mod tests {
    use plmkit_esm2::Varlen;
    use tch::{Device, Kind};

    use super::*;
    use crate::transfer::Transfer;

    /// Softmax attention written out, one sequence, `(length, 3, heads, head_dim)` f64.
    fn written_out(qkv: &Tensor) -> Tensor {
        let qkv = qkv.to_kind(Kind::Double).permute([1, 2, 0, 3]);
        let (q, k, v) = (qkv.get(0), qkv.get(1), qkv.get(2)); // (heads, length, head_dim)
        let scores = q.matmul(&k.transpose(1, 2)) / (q.size()[2] as f64).sqrt();
        let mixed = scores.softmax(-1, Kind::Double).matmul(&v);
        mixed.transpose(0, 1).reshape([qkv.size()[2], -1]) // (length, heads·head_dim)
    }

    #[test]
    fn each_sequence_attends_to_itself_for_every_head_size_of_esm2() {
        for head_dim in [16, 24, 32, 64, 128] {
            let lengths = [3, 70, 5, 300];
            let cu_seqlens = [0, 3, 73, 78, 378];
            let mut tokens = vec![5u8; 378];
            for bounds in cu_seqlens.windows(2) {
                tokens[bounds[0] as usize] = 0;
                tokens[bounds[1] as usize - 1] = 2;
            }
            let varlen = Varlen::new(&tokens, &cu_seqlens).unwrap();
            let transfer = Transfer::new(Device::Cpu, false).unwrap();
            let (batch, _) = DeviceBatch::new(varlen, Kind::Float, &transfer, false).unwrap();
            tch::manual_seed(head_dim);
            let qkv = Tensor::randn([378, 3, 2, head_dim], (Kind::Float, Device::Cpu));
            let found = forward(&qkv, &batch).unwrap();
            let expected = Tensor::cat(
                &qkv.split_with_sizes(lengths, 0)
                    .iter()
                    .map(written_out)
                    .collect::<Vec<_>>(),
                0,
            );
            let error = (found.to_kind(Kind::Double) - expected)
                .abs()
                .max()
                .double_value(&[]);
            assert!(error < 1e-5, "head_dim {head_dim}: {error}");
        }
    }
}
