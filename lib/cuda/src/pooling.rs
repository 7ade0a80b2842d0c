//! Pools the vectors of a sequence's residues to one vector.

use plmkit_contract::Pooling;
use plmkit_esm2::Varlen;
use tch::{Kind, TchError, Tensor};

use crate::CudaError;

/// Pools hidden states, `(total_tokens, hidden)`, over the residues of each sequence in f32: `(sequences, hidden)`.
pub(crate) fn pool(hidden: &Tensor, batch: Varlen<'_>, pool: Pooling) -> Result<Tensor, CudaError> {
    let rows = batch
        .spans()
        .map(|span| {
            let (bos, tokens) = (span.start as i64, span.len() as i64);
            let own = |first, count| {
                hidden
                    .f_narrow(0, bos + first, count)?
                    .f_to_kind(Kind::Float)
            };
            let residues = || own(1, tokens - 2); // (residues, hidden)
            match pool {
                Pooling::Mean => residues()?.f_mean_dim([0].as_slice(), false, Kind::Float),
                Pooling::Max => residues()?.f_amax([0], false),
                // Divided by n: a single residue has the deviation 0 instead of 0/0.
                Pooling::Std => residues()?.f_std_dim([0].as_slice(), false, false),
                Pooling::Bos => own(0, 1)?.f_squeeze_dim(0),
            }
        })
        .collect::<Result<Vec<Tensor>, TchError>>()?; // (hidden) each
    Ok(Tensor::f_stack(&rows, 0)?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    /// The vectors of `<cls>` and `<eos>` would change every pooling that included them.
    const HIDDEN: [f32; 14] = [
        90.0, -90.0, // <cls>
        1.0, 10.0, //
        2.0, 20.0, //
        91.0, -91.0, // <eos>
        80.0, -80.0, // <cls>
        5.0, -7.0, // the only residue
        81.0, -81.0, // <eos>
    ];

    fn pooled(by: Pooling) -> Vec<f32> {
        let hidden = Tensor::from_slice(&HIDDEN).view([7, 2]);
        let batch = Varlen::new(&[0, 20, 5, 2, 0, 6, 2], &[0, 4, 7]).unwrap();
        let pooled = pool(&hidden, batch, by).unwrap();
        assert_eq!(pooled.size2().unwrap(), (2, 2));
        Vec::try_from(pooled.flatten(0, -1)).unwrap()
    }

    #[test]
    fn pooling_is_over_residues_only() {
        assert_eq!(pooled(Pooling::Mean), [1.5, 15.0, 5.0, -7.0]);
        assert_eq!(pooled(Pooling::Max), [2.0, 20.0, 5.0, -7.0]);
        assert_eq!(pooled(Pooling::Std), [0.5, 5.0, 0.0, 0.0]);
        assert_eq!(pooled(Pooling::Bos), [90.0, -90.0, 80.0, -80.0]);
    }

    #[test]
    fn the_mean_of_many_large_values_keeps_their_digits() {
        let residues = 40_000;
        let mut tokens = vec![5u8; residues + 2];
        tokens[0] = 0;
        tokens[residues + 1] = 2;
        let cu_seqlens = [0, residues as i32 + 2];
        let batch = Varlen::new(&tokens, &cu_seqlens).unwrap();
        let hidden = Tensor::full([residues as i64 + 2, 1], 1000.1, (Kind::Float, Device::Cpu));
        let pooled = |by| pool(&hidden, batch, by).unwrap().double_value(&[0, 0]);
        let mean = pooled(Pooling::Mean);
        assert!((mean - 1000.1).abs() < 1e-3, "{mean}");
        let deviation = pooled(Pooling::Std);
        assert!(deviation < 1e-3, "{deviation}");
    }
}
