//! All parameters of a model, in the layout in which the forward pass reads them.

use crate::body::Body;
use crate::embedding::Embedding;
use crate::heads::Heads;
use crate::layer_norm::LayerNorm;

/// What a checkpoint holds, on a device.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Tokens to vectors.
    pub(crate) embedding: Embedding,
    /// The transformer layers.
    pub(crate) body: Box<dyn Body>,
    /// After the last layer.
    pub(crate) final_norm: LayerNorm,
    /// What stands on top.
    pub(crate) heads: Heads,
}
