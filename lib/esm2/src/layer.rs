//! The parameters of a transformer layer, with the normalisation in front of each half (pre-LN).

use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::rope::Frequencies;

/// The parameters of a layer.
#[derive(Debug)]
pub(crate) struct Layer {
    /// In front of attention.
    pub(crate) attention_norm: LayerNorm,
    /// Queries, keys and values in one: `(3·hidden, hidden)`, channels of queries and keys paired for the rotation.
    pub(crate) qkv: Linear,
    /// Of the rotation.
    pub(crate) inv_freq: Frequencies,
    /// After attention: `(hidden, hidden)`.
    pub(crate) out: Linear,
    /// In front of the feed-forward network.
    pub(crate) ffn_norm: LayerNorm,
    /// Into the feed-forward network: `(intermediate, hidden)`.
    pub(crate) up: Linear,
    /// Out of it: `(hidden, intermediate)`.
    pub(crate) down: Linear,
}
