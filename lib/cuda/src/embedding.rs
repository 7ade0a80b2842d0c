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
