//! The parameters of a model.

use crate::body::Body;
use crate::embedding::Embedding;
use crate::heads::{ContactHead, LanguageModelHead};
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::rope::Frequencies;

/// All parameters of a model, on a device.
#[derive(Debug)]
pub(crate) struct Weights {
    pub(crate) embedding: Embedding,
    pub(crate) body: Box<dyn Body>,
    /// Applied after the last layer.
    pub(crate) final_norm: LayerNorm,
    pub(crate) language_model: Option<LanguageModelHead>,
    pub(crate) contact: Option<ContactHead>,
}

/// The parameters of a transformer layer with pre-layer normalisation.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Applied before attention.
    pub(crate) attention_norm: LayerNorm,
    /// Queries, keys and values: `(3·hidden, hidden)`. Channels of queries and keys are paired for the rotation.
    pub(crate) qkv: Linear,
    /// Frequencies of the rotation.
    pub(crate) inv_freq: Frequencies,
    /// After attention: `(hidden, hidden)`.
    pub(crate) out: Linear,
    /// Applied before the feed-forward network.
    pub(crate) ffn_norm: LayerNorm,
    /// Input of the feed-forward network: `(intermediate, hidden)`.
    pub(crate) up: Linear,
    /// Output of the feed-forward network: `(hidden, intermediate)`.
    pub(crate) down: Linear,
}
