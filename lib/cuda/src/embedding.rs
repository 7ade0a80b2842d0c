//! Token ids to vectors.

use plmkit_contract::MASK;
use plmkit_cpu::MASKED_IN_TRAINING;
use tch::{Kind, Tensor};

use crate::CudaError;
use crate::device_batch::DeviceBatch;
use crate::layer_norm::LayerNorm;

/// The embedding table with fair-esm's token dropout, which applies at inference too.
#[derive(Debug)]
pub(crate) struct Embedding {
    /// `(vocabulary, hidden)` f32
    pub(crate) table: Tensor,
    /// Whether vectors are scaled by the share of masked tokens.
    pub(crate) token_dropout: bool,
    /// `(positions, hidden)` f32: added to the vectors.
    pub(crate) positions: Option<Tensor>,
    /// Applied last.
    pub(crate) norm: Option<LayerNorm>,
}

impl Embedding {
    /// Takes the stored word embeddings, `(vocabulary, hidden)` f32.
    ///
    /// With token dropout, the row of `<mask>` is zero, and every vector is scaled by `(1 - 0.12) / (1 - m)`: `m` is the share
    /// of `<mask>` in its sequence, with `<cls>` and `<eos>`. This function multiplies the table by the numerator, which
    /// rounds like multiplying the vectors.
    pub(crate) fn new(words: &Tensor, token_dropout: bool) -> Result<Self, CudaError> {
        let table = if token_dropout {
            let table = words.f_mul_scalar(1.0 - MASKED_IN_TRAINING)?;
            let _ = table.f_get(i64::from(MASK))?.f_fill_(0.0)?;
            table
        } else {
            words.shallow_clone()
        };
        Ok(Self {
            table,
            token_dropout,
            positions: None,
            norm: None,
        })
    }

    /// Adds the vectors of positions to `x`, `(rows, hidden)` f32, and normalises it, if the model does.
    pub(crate) fn finish(&self, mut x: Tensor, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
        if let Some(positions) = &self.positions {
            let rows = batch.positions.f_to_kind(Kind::Int64)?;
            let _ = x.f_add_(&positions.f_index_select(0, &rows)?)?;
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }

    /// Computes scaled vectors of tokens: `(rows, hidden)` f32.
    pub(crate) fn forward(&self, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
        let tokens = batch.tokens.f_to_kind(Kind::Int64)?;
        let x = self.table.f_index_select(0, &tokens)?; // (rows, hidden)
        if self.token_dropout
            && let Some(kept) = batch.varlen.shares_kept()
        {
            for (span, kept) in batch.varlen.spans().zip(kept) {
                let _ = x
                    .f_narrow(0, span.start as i64, span.len() as i64)?
                    .f_div_scalar_(f64::from(kept))?;
            }
        }
        Ok(x)
    }
}

#[cfg(test)]
mod tests {
    use plmkit_esm2::Varlen;
    use tch::Device;

    use super::*;
    use crate::transfer::Transfer;

    fn words() -> Tensor {
        Tensor::from_slice(&(1..=33).map(|row| row as f32).collect::<Vec<_>>()).view([33, 1])
    }

    fn embed(tokens: &[u8], cu_seqlens: &[i32], token_dropout: bool) -> Vec<f32> {
        let varlen = Varlen::new(tokens, cu_seqlens).unwrap();
        let transfer = Transfer::new(Device::Cpu, false).unwrap();
        let (batch, _) = DeviceBatch::new(varlen, Kind::Float, &transfer, false).unwrap();
        let embedding = Embedding::new(&words(), token_dropout).unwrap();
        let own = batch.own(&embedding.forward(&batch).unwrap()).unwrap();
        Vec::try_from(own.view([-1])).unwrap()
    }

    #[test]
    fn without_masks_vectors_are_scaled_by_the_share_kept_in_training() {
        let scaled = [0u8, 5, 2].map(|token| (f32::from(token) + 1.0) * 0.88);
        assert_eq!(embed(&[0, 5, 2], &[0, 3], true), scaled);
    }

    #[test]
    fn masks_are_counted_for_each_sequence() {
        let vectors = embed(&[0, 32, 5, 2, 0, 5, 2], &[0, 4, 7], true);
        let kept = 1.0 - 1.0 / 4.0;
        assert_eq!(vectors[1], 0.0);
        assert_eq!(vectors[2], 6.0 * 0.88 / kept);
        assert_eq!(vectors[5], 6.0 * 0.88);
    }

    #[test]
    fn without_token_dropout_rows_are_not_scaled() {
        assert_eq!(embed(&[0, 32, 2], &[0, 3], false), [1.0, 33.0, 3.0]);
    }
}
