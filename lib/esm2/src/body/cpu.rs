//! Layers of plmkit's own kernels.

use std::num::NonZeroUsize;
use std::ops::Range;

use plmkit_cpu::{Encoder, Isa, Layer, LayerNorm, Multiply, Weights};
use tch::{Device, Kind, Tensor};

use super::{Body, Watch};
use crate::packed::Packed;
use crate::threads::threads;
use crate::{EsmError, layer, layer_norm, linear};

/// Parameters as the kernels read them.
#[derive(Debug)]
pub(crate) struct OnCpu {
    /// Their name.
    kernels: String,
    encoder: Encoder,
    multiply: Multiply,
    heads: usize,
}

impl OnCpu {
    /// Layers that were [`packed`].
    pub(crate) fn new(isa: Isa, multiply: Multiply, layers: Vec<Layer>, heads: usize) -> Self {
        Self {
            kernels: isa.for_weights(multiply).to_string(),
            encoder: Encoder::new(isa, layers, heads),
            multiply,
            heads,
        }
    }
}

/// A layer as the kernels of `isa` read it.
pub(crate) fn packed(
    isa: Isa,
    multiply: Multiply,
    layer: &layer::Layer,
) -> Result<Layer, EsmError> {
    let weights = |linear: &linear::Linear| {
        let (weight, bias) = (values(&linear.weight)?, values(&linear.bias)?);
        Ok::<_, EsmError>(Weights::pack(isa, multiply, &weight, &bias)?)
    };
    let norm = |norm: &layer_norm::LayerNorm| {
        Ok::<_, EsmError>(LayerNorm {
            weight: values(&norm.weight)?,
            bias: values(&norm.bias)?,
            eps: norm.eps as f32,
        })
    };
    Ok(Layer {
        attention_norm: norm(&layer.attention_norm)?,
        qkv: weights(&layer.qkv)?,
        inv_freq: layer.inv_freq.values.clone(),
        out: weights(&layer.out)?,
        ffn_norm: norm(&layer.ffn_norm)?,
        up: weights(&layer.up)?,
        down: weights(&layer.down)?,
    })
}

/// The values of a tensor, row by row, in f32.
fn values(tensor: &Tensor) -> Result<Vec<f32>, EsmError> {
    let flat = tensor.f_to_kind(Kind::Float)?.f_to_device(Device::Cpu)?;
    Ok(Vec::try_from(flat.f_contiguous()?.f_flatten(0, -1)?)?)
}

impl Body for OnCpu {
    fn kernels(&self) -> String {
        self.kernels.clone()
    }

    /// With more, contacts and logits would have other last bits.
    fn libtorch_threads(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    fn forward(
        &self,
        x: Tensor,
        batch: &Packed,
        depth: usize,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        let (_, hidden) = x.size2()?;
        let sequences: Vec<Range<usize>> = batch.varlen.spans().collect();
        let mut watcher = Watcher {
            heads: self.heads as i64,
            hidden,
            watch,
        };
        let mut x = values(&batch.own(&x)?)?;
        // Integers cannot be had in another type.
        let in_f32 = batch.kind == Kind::Float && self.multiply != Multiply::Int8;
        self.encoder
            .forward(&mut x, &sequences, depth, in_f32, threads(), &mut watcher)
    }
}

/// Shows tensors to one who expects them.
struct Watcher<'a> {
    heads: i64,
    hidden: i64,
    watch: &'a mut dyn Watch,
}

impl plmkit_cpu::Watch for Watcher<'_> {
    type Error = EsmError;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), EsmError> {
        let hidden = self.hidden;
        self.watch.hidden(
            layer,
            &|| Ok(Tensor::f_from_slice(x)?.f_view([-1, hidden])?),
        )
    }

    fn attention(&mut self, qkv: &[f32]) -> Result<(), EsmError> {
        let (heads, head_dim) = (self.heads, self.hidden / self.heads);
        self.watch
            .attention(&|| Ok(Tensor::f_from_slice(qkv)?.f_view([-1, 3, heads, head_dim])?))
    }
}
