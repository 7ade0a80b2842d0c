//! One transformer layer, with the normalisation in front of each half (pre-LN).

use tch::{Kind, Tensor};

use crate::EsmError;
use crate::attention::Attention;
use crate::body::Watch;
use crate::layer_norm::LayerNorm;
use crate::linear::Linear;
use crate::packed::Packed;
use crate::profile::Work;
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
        self.feed_forward(x, batch)
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
        let normalised = self.attention_norm.forward(x)?;
        batch.lap(Work::LayerNorm)?;
        let qkv = self.qkv.forward(&normalised, batch.kind)?; // (total_tokens, 3·hidden)
        batch.lap(Work::Gemm)?;
        let qkv = qkv.f_to_kind(Kind::Float)?;
        let qkv = qkv.f_view([tokens, 3 * heads, hidden / heads])?;
        rotation.apply(&qkv.f_narrow(1, 0, 2 * heads)?)?;
        let qkv = qkv.f_view([tokens, 3, heads, hidden / heads])?;
        watch.attention(&|| Ok(qkv.shallow_clone()))?;
        let qkv = qkv.f_to_kind(batch.kind)?;
        batch.lap(Work::Rotary)?;
        let mixed = attention.forward(&qkv, batch)?; // (total_tokens, hidden)
        batch.lap(Work::Attention)?;
        self.out.add_to(x, &mixed, batch.kind)?;
        batch.lap(Work::Gemm)
    }

    fn feed_forward(&self, x: &mut Tensor, batch: &Packed) -> Result<(), EsmError> {
        let normalised = self.ffn_norm.forward(x)?;
        batch.lap(Work::LayerNorm)?;
        let mut wide = self.up.forward(&normalised, batch.kind)?; // (total_tokens, intermediate)
        batch.lap(Work::Gemm)?;
        // The exact GELU, by erf: the tanh form differs by up to 5e-4.
        let _ = wide.f_gelu_("none")?;
        batch.lap(Work::Gelu)?;
        self.down.add_to(x, &wide, batch.kind)?;
        batch.lap(Work::Gemm)
    }
}
