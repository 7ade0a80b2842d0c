//! Layers of libtorch's operations, on any device.

use plmkit_esm2::Work;
use tch::{Kind, Tensor};

use super::{Body, LayerObserver};
use crate::CudaError;
use crate::attention::Attention;
use crate::device_batch::DeviceBatch;
use crate::rope::{RotationCache, rotate, turns};
use crate::weights::Layer;

/// Computes layers with libtorch's operations.
#[derive(Debug)]
pub(crate) struct OnLibtorch {
    layers: Vec<Layer>,
    heads: usize,
    attention: Attention,
}

impl OnLibtorch {
    pub(crate) fn new(layers: Vec<Layer>, heads: usize, attention: Attention) -> Self {
        Self {
            layers,
            heads,
            attention,
        }
    }
}

impl Body for OnLibtorch {
    fn kernels(&self) -> String {
        "libtorch".to_owned()
    }

    fn forward(
        &self,
        mut x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), CudaError> {
        batch.lap(Work::Embedding)?;
        observer.hidden(0, &|| Ok(x.shallow_clone()))?;
        let mut rotations = RotationCache::default();
        for (layer, number) in self.layers[..depth].iter().zip(1..) {
            let turns =
                rotations.get(&layer.inv_freq, || turns(&batch.positions, &layer.inv_freq))?;
            self.attend(layer, &mut x, turns, batch, observer)?;
            feed_forward(layer, &mut x, batch)?;
            observer.hidden(number, &|| Ok(x.shallow_clone()))?;
        }
        Ok(())
    }
}

impl OnLibtorch {
    /// Adds the attention of `layer` to the residual stream `x`, `(total_tokens, hidden)` f32, and shows its queries and keys to
    /// `observer`. Matrix products and attention are computed in the batch's kind.
    fn attend(
        &self,
        layer: &Layer,
        x: &mut Tensor,
        turns: &Tensor,
        batch: &DeviceBatch,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), CudaError> {
        let (tokens, hidden) = x.size2()?;
        let heads = self.heads as i64;
        let normalised = layer.attention_norm.forward(x)?;
        batch.lap(Work::LayerNorm)?;
        let qkv = layer.qkv.forward(&normalised, batch.kind)?; // (total_tokens, 3·hidden)
        batch.lap(Work::Gemm)?;
        let qkv = qkv.f_to_kind(Kind::Float)?;
        let qkv = qkv.f_view([tokens, 3 * heads, hidden / heads])?;
        rotate(&qkv.f_narrow(1, 0, 2 * heads)?, turns)?;
        let qkv = qkv.f_view([tokens, 3, heads, hidden / heads])?;
        observer.attention(&|| Ok(qkv.shallow_clone()))?;
        let qkv = qkv.f_to_kind(batch.kind)?;
        batch.lap(Work::Rotary)?;
        let mixed = self.attention.forward(&qkv, batch)?; // (total_tokens, hidden)
        batch.lap(Work::Attention)?;
        layer.out.add_to(x, &mixed, batch.kind)?;
        batch.lap(Work::Gemm)
    }
}

/// Adds the output of the feed-forward network of `layer` to the residual stream.
fn feed_forward(layer: &Layer, x: &mut Tensor, batch: &DeviceBatch) -> Result<(), CudaError> {
    let normalised = layer.ffn_norm.forward(x)?;
    batch.lap(Work::LayerNorm)?;
    let mut wide = layer.up.forward(&normalised, batch.kind)?; // (total_tokens, intermediate)
    batch.lap(Work::Gemm)?;
    // The exact GELU, by erf: the tanh form differs by up to 5e-4.
    let _ = wide.f_gelu_("none")?;
    batch.lap(Work::Gelu)?;
    layer.down.add_to(x, &wide, batch.kind)?;
    batch.lap(Work::Gemm)
}
