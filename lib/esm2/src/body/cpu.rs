//! Layers of plmkit's own kernels.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use plmkit_cpu::{Encoder, Isa, Layer, Multiply};
use tch::{Device, Kind, Tensor};

use super::{Body, LayerObserver};
use crate::checkpoint::Mapped;
use crate::device_batch::DeviceBatch;
use crate::threads::threads;
use crate::{EsmError, ModelConfig};

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
    /// Packed layers.
    pub(crate) fn new(isa: Isa, multiply: Multiply, layers: Vec<Layer>, heads: usize) -> Self {
        Self {
            kernels: isa.for_weights(multiply).to_string(),
            encoder: Encoder::new(isa, layers, heads),
            multiply,
            heads,
        }
    }
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
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), EsmError> {
        // Integers cannot be had in another type.
        let in_f32 = batch.kind == Kind::Float && self.multiply != Multiply::Int8;
        Pass::new(&x, batch, self.heads, observer)?.run_layers(&self.encoder, depth, in_f32)
    }
}

/// Layers that are packed in f32 when they are computed, and gone when they are.
#[derive(Debug)]
pub(crate) struct Streamed {
    isa: Isa,
    config: ModelConfig,
    /// Of each layer.
    frequencies: Vec<Vec<f32>>,
    mapped: Arc<Mapped>,
}

impl Streamed {
    pub(crate) fn new(
        isa: Isa,
        mapped: Arc<Mapped>,
        config: ModelConfig,
        frequencies: Vec<Vec<f32>>,
    ) -> Self {
        Self {
            isa,
            config,
            frequencies,
            mapped,
        }
    }
}

impl Body for Streamed {
    fn kernels(&self) -> String {
        self.isa.for_weights(Multiply::F32).to_string()
    }

    fn libtorch_threads(&self) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    fn forward(
        &self,
        x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), EsmError> {
        let heads = self.config.heads;
        let mut pass = Pass::new(&x, batch, heads, observer)?;
        for (first, inv_freq) in self.frequencies[..depth].iter().enumerate() {
            let kernels = (self.isa, Multiply::F32);
            let layer = self
                .mapped
                .layer(&self.config, first, inv_freq.clone(), kernels)?;
            pass.adapter.first = first;
            pass.run_layers(&Encoder::new(self.isa, vec![layer], heads), 1, true)?;
        }
        Ok(())
    }
}

/// A batch on its way through the layers.
struct Pass<'a> {
    /// `(total_tokens, hidden)`
    x: Vec<f32>,
    sequences: Vec<Range<usize>>,
    adapter: TensorAdapter<'a>,
}

impl<'a> Pass<'a> {
    fn new(
        x: &Tensor,
        batch: &DeviceBatch,
        heads: usize,
        observer: &'a mut dyn LayerObserver,
    ) -> Result<Self, EsmError> {
        Ok(Self {
            x: values(&batch.own(x)?)?,
            sequences: batch.varlen.spans().collect(),
            adapter: TensorAdapter {
                heads: heads as i64,
                hidden: x.size2()?.1,
                first: 0,
                observer,
            },
        })
    }

    /// Through the first `depth` layers of `encoder`.
    fn run_layers(
        &mut self,
        encoder: &Encoder,
        depth: usize,
        in_f32: bool,
    ) -> Result<(), EsmError> {
        let (x, adapter) = (&mut self.x, &mut self.adapter);
        encoder.forward(x, &self.sequences, depth, in_f32, threads(), adapter)
    }
}

/// Shows tensors to one who expects them.
struct TensorAdapter<'a> {
    heads: i64,
    hidden: i64,
    /// The layer before the first that is computed.
    first: usize,
    observer: &'a mut dyn LayerObserver,
}

impl plmkit_cpu::LayerObserver for TensorAdapter<'_> {
    type Error = EsmError;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), EsmError> {
        let hidden = self.hidden;
        // What goes into a later layer has come out of the one before.
        if layer == 0 && self.first > 0 {
            return Ok(());
        }
        self.observer.hidden(self.first + layer, &|| {
            Ok(Tensor::f_from_slice(x)?.f_view([-1, hidden])?)
        })
    }

    fn attention(&mut self, qkv: &[f32]) -> Result<(), EsmError> {
        let (heads, head_dim) = (self.heads, self.hidden / self.heads);
        self.observer
            .attention(&|| Ok(Tensor::f_from_slice(qkv)?.f_view([-1, 3, heads, head_dim])?))
    }
}
