//! Heads on top of the encoder, which a checkpoint may lack.

mod contact;

use tch::{Kind, Tensor};

use crate::CudaError;
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;

pub(crate) use contact::{ContactHead, Contacts};

/// Residue vectors to logits of each token of the vocabulary: the head that ESM-2 was trained with.
#[derive(Debug)]
pub(crate) struct LanguageModelHead {
    /// `(hidden, hidden)`
    pub(crate) dense: Linear,
    pub(crate) norm: LayerNorm,
    /// `(vocabulary, hidden)`: the stored word embeddings or a stored decoder, with a bias of its own.
    pub(crate) decoder: Linear,
}

impl LanguageModelHead {
    /// Maps the output of the final `LayerNorm`, `(tokens, hidden)`, to `(tokens, vocabulary)`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor, CudaError> {
        let mut x = self.dense.forward(x, Kind::Float)?;
        let _ = x.f_gelu_("none")?;
        self.decoder.forward(&self.norm.forward(&x)?, Kind::Float)
    }
}
