//! Attention on a GPU: one kernel call for many sequences, with the offset of each.

use tch::{Kind, Tensor};

use crate::CudaError;
use crate::device_batch::DeviceBatch;
use crate::shim::varlen_attention;

/// The least compute capability that has flash attention.
const FLASH: (i32, i32) = (8, 0);

/// The widest head that flash attention supports.
const FLASH_HEAD_DIM: i64 = 256;

/// Both kernels need heads with a multiple of this many channels.
const ALIGNMENT: i64 = 8;

/// The most sequences of a call: both kernels have one block for each along a grid axis with this limit.
const MAX_SEQUENCES: usize = 65_535;

/// See [`attend`](super::attend).
pub(super) fn forward(
    qkv: &Tensor,
    batch: &DeviceBatch,
    capability: (i32, i32),
) -> Result<Tensor, CudaError> {
    let flash = has_flash(capability, qkv.f_kind()?, qkv.size4()?.3);
    let call = |heads: [&Tensor; 3], offsets: &Tensor, longest, scale| {
        varlen_attention(flash, heads, offsets, longest, scale)
    };
    in_calls(qkv, batch, MAX_SEQUENCES, &call)
}

/// Whether the device, the type and the heads support flash attention.
fn has_flash(capability: (i32, i32), kind: Kind, head_dim: i64) -> bool {
    let is_half = matches!(kind, Kind::Half | Kind::BFloat16);
    is_half && capability >= FLASH && head_dim <= FLASH_HEAD_DIM
}

/// A kernel: see [`varlen_attention`].
type Call<'a> = dyn Fn([&Tensor; 3], &Tensor, i64, f64) -> Result<Tensor, CudaError> + 'a;

/// Computes attention by calls of `most` sequences. Heads are padded with zeros to the alignment of the kernel, which changes
/// neither scores nor mixes.
fn in_calls(
    qkv: &Tensor,
    batch: &DeviceBatch,
    most: usize,
    call: &Call,
) -> Result<Tensor, CudaError> {
    let (rows, _, heads, head_dim) = qkv.size4()?;
    let scale = (head_dim as f64).powf(-0.5);
    let qkv = match head_dim % ALIGNMENT {
        0 => qkv.shallow_clone(),
        over => qkv.f_constant_pad_nd([0, ALIGNMENT - over])?,
    };
    let (sequences, cu_seqlens) = (batch.varlen.sequences(), batch.varlen.cu_seqlens());
    let mut mixed = Vec::new(); // (tokens, heads, head_dim) each
    for first in (0..sequences).step_by(most) {
        let count = most.min(sequences - first);
        let bounds = &cu_seqlens[first..=first + count];
        let start = i64::from(bounds[0]);
        let own = qkv.f_narrow(0, start, i64::from(bounds[count]) - start)?;
        let part = |i| own.f_select(1, i); // (tokens, heads, head_dim)
        let offsets = batch.offsets.f_narrow(0, first as i64, count as i64 + 1)?;
        let offsets = match start {
            0 => offsets,
            _ => offsets.f_sub_scalar(start)?,
        };
        let longest = bounds.windows(2).map(|pair| pair[1] - pair[0]).max();
        let longest = i64::from(longest.unwrap_or(0));
        mixed.push(call(
            [&part(0)?, &part(1)?, &part(2)?],
            &offsets,
            longest,
            scale,
        )?);
    }
    let missing = rows - batch.varlen.total_tokens() as i64;
    if missing > 0 {
        // Rows outside of all sequences are zero.
        mixed.push(mixed[0].f_new_zeros(
            [missing, heads, mixed[0].size3()?.2],
            (qkv.f_kind()?, qkv.device()),
        )?);
    }
    let mixed = match mixed.as_slice() {
        [all] => all.shallow_clone(),
        several => Tensor::f_cat(several, 0)?,
    };
    let mixed = mixed.f_narrow(2, 0, head_dim)?;
    Ok(mixed.f_reshape([rows, heads * head_dim])?)
}

#[cfg(test)]
mod tests {
    use plmkit_esm2::Varlen;
    use tch::Device;

    use super::*;
    use crate::attention::per_sequence;
    use crate::transfer::Transfer;

    #[test]
    fn flash_attention_where_it_is_supported() {
        let (hopper, turing) = ((9, 0), (7, 5));
        for (capability, kind, head_dim, expected) in [
            (hopper, Kind::Half, 64, true),
            (hopper, Kind::BFloat16, 256, true),
            (hopper, Kind::Half, 264, false),
            (hopper, Kind::Float, 64, false),
            (turing, Kind::Half, 64, false),
        ] {
            assert_eq!(has_flash(capability, kind, head_dim), expected);
        }
    }

    /// What the kernels compute, with asserts for what they refuse.
    fn by_hand(
        [query, key, value]: [&Tensor; 3],
        offsets: &Tensor,
        longest: i64,
        scale: f64,
    ) -> Tensor {
        let offsets = Vec::<i32>::try_from(offsets).unwrap();
        assert!(offsets.len() <= 4, "{offsets:?}");
        assert_eq!(offsets[0], 0);
        assert_eq!(query.size()[0], i64::from(*offsets.last().unwrap()));
        assert_eq!(query.size()[2] % 8, 0);
        let lengths: Vec<i64> = offsets
            .windows(2)
            .map(|pair| i64::from(pair[1] - pair[0]))
            .collect();
        assert_eq!(lengths.iter().max(), Some(&longest));
        let [queries, keys, values] = [query, key, value].map(|all| {
            let each = all.split_with_sizes(lengths.as_slice(), 0);
            each.iter()
                .map(|one| one.transpose(0, 1))
                .collect::<Vec<_>>() // (heads, length, head_dim)
        });
        let mixed: Vec<Tensor> = (0..lengths.len())
            .map(|i| {
                let scores = queries[i].matmul(&keys[i].transpose(1, 2)) * scale;
                let mixed = scores.softmax(-1, Kind::Float).matmul(&values[i]);
                mixed.transpose(0, 1)
            })
            .collect();
        Tensor::cat(&mixed, 0)
    }

    #[test]
    fn several_calls_and_padded_heads_give_the_same_attention() {
        let transfer = Transfer::new(Device::Cpu, false).unwrap();
        for lengths in [
            vec![3, 70, 5, 4, 3, 9, 17, 3],
            vec![20, 3, 3],
            vec![30],
            vec![5, 4],
        ] {
            let mut tokens = Vec::new();
            let mut cu_seqlens = vec![0];
            for length in lengths {
                tokens.push(0);
                tokens.resize(tokens.len() + length - 2, 5u8);
                tokens.push(2);
                cu_seqlens.push(tokens.len() as i32);
            }
            let varlen = Varlen::new(&tokens, &cu_seqlens).unwrap();
            let (batch, _) = DeviceBatch::new(varlen, Kind::Float, &transfer, false).unwrap();
            let rows = batch.tokens.size1().unwrap();
            for head_dim in [2, 8, 10, 16, 20] {
                tch::manual_seed(head_dim);
                let qkv = Tensor::randn([rows, 3, 2, head_dim], (Kind::Float, Device::Cpu));
                let call = |heads: [&Tensor; 3], offsets: &Tensor, longest, scale| {
                    Ok(by_hand(heads, offsets, longest, scale))
                };
                let found = in_calls(&qkv, &batch, 3, &call).unwrap();
                let expected = per_sequence::forward(&qkv, &batch).unwrap();
                assert_eq!(found.size(), expected.size());
                let error = (found - expected).abs().max().double_value(&[]);
                assert!(error < 1e-5, "{cu_seqlens:?}, head_dim {head_dim}: {error}");
            }
        }
    }
}
