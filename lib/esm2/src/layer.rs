//! One transformer layer, with the normalisation in front of each half (pre-LN).

use tch::{Kind, Tensor};

use crate::EsmError;
use crate::attention::Attention;
use crate::body::Watch;
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::packed::Packed;
use crate::rope::{Frequencies, Rotation};

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

impl Layer {
    /// Advances the residual stream `x`, `(total_tokens, hidden)` f32, by one layer, in place, and shows the layer's
    /// queries and keys to `watch`. GEMMs and attention are of the batch's kind.
    pub(crate) fn forward(
        &self,
        x: &mut Tensor,
        heads: usize,
        rotation: &Rotation,
        attention: &dyn Attention,
        batch: &Packed,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        self.attend(x, heads, rotation, attention, batch, watch)?;
        self.feed_forward(x, batch.kind)
    }

    fn attend(
        &self,
        x: &mut Tensor,
        heads: usize,
        rotation: &Rotation,
        attention: &dyn Attention,
        batch: &Packed,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        let (tokens, hidden) = x.size2()?;
        let heads = heads as i64;
        let qkv = self
            .qkv
            .forward(&self.attention_norm.forward(x)?, batch.kind)?; // (total_tokens, 3·hidden)
        let qkv = qkv.f_to_kind(Kind::Float)?;
        let qkv = qkv.f_view([tokens, 3 * heads, hidden / heads])?;
        rotation.apply(&qkv.f_narrow(1, 0, 2 * heads)?)?;
        let qkv = qkv.f_view([tokens, 3, heads, hidden / heads])?;
        watch.attention(&|| Ok(qkv.shallow_clone()))?;
        let mixed = attention.forward(&qkv.f_to_kind(batch.kind)?, batch)?; // (total_tokens, hidden)
        self.out.add_to(x, &mixed, batch.kind)
    }

    fn feed_forward(&self, x: &mut Tensor, kind: Kind) -> Result<(), EsmError> {
        let mut wide = self.up.forward(&self.ffn_norm.forward(x)?, kind)?; // (total_tokens, intermediate)
        // The exact GELU, by erf: the tanh form differs by up to 5e-4.
        let _ = wide.f_gelu_("none")?;
        self.down.add_to(x, &wide, kind)
    }
}
