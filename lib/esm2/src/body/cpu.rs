//! Layers of plmkit's own kernels.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use plmkit_cpu::{Encoder, Isa, Layer, Multiply};
use tch::{Device, Kind, Tensor};

use super::{Body, Watch};
use crate::checkpoint::Mapped;
use crate::packed::Packed;
use crate::threads::threads;
use crate::{Config, EsmError};

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
        batch: &Packed,
        depth: usize,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        // Integers cannot be had in another type.
        let in_f32 = batch.kind == Kind::Float && self.multiply != Multiply::Int8;
        Pass::new(&x, batch, self.heads, watch)?.through(&self.encoder, depth, in_f32)
    }
}

/// Layers that are packed in f32 when they are computed, and gone when they are.
#[derive(Debug)]
pub(crate) struct Streamed {
    isa: Isa,
    config: Config,
    /// Of each layer.
    frequencies: Vec<Vec<f32>>,
    mapped: Arc<Mapped>,
}

impl Streamed {
    pub(crate) fn new(
        isa: Isa,
        mapped: Arc<Mapped>,
        config: Config,
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
        batch: &Packed,
        depth: usize,
        watch: &mut dyn Watch,
    ) -> Result<(), EsmError> {
        let heads = self.config.heads;
        let mut pass = Pass::new(&x, batch, heads, watch)?;
        for (first, inv_freq) in self.frequencies[..depth].iter().enumerate() {
            let kernels = (self.isa, Multiply::F32);
            let layer = self
                .mapped
                .layer(&self.config, first, inv_freq.clone(), kernels)?;
            pass.watcher.first = first;
            pass.through(&Encoder::new(self.isa, vec![layer], heads), 1, true)?;
        }
        Ok(())
    }
}

/// A batch on its way through the layers.
struct Pass<'a> {
    /// `(total_tokens, hidden)`
    x: Vec<f32>,
    sequences: Vec<Range<usize>>,
    watcher: Watcher<'a>,
}

impl<'a> Pass<'a> {
    fn new(
        x: &Tensor,
        batch: &Packed,
        heads: usize,
        watch: &'a mut dyn Watch,
    ) -> Result<Self, EsmError> {
        Ok(Self {
            x: values(&batch.own(x)?)?,
            sequences: batch.varlen.spans().collect(),
            watcher: Watcher {
                heads: heads as i64,
                hidden: x.size2()?.1,
                first: 0,
                watch,
            },
        })
    }

    /// Through the first `depth` layers of `encoder`.
    fn through(&mut self, encoder: &Encoder, depth: usize, in_f32: bool) -> Result<(), EsmError> {
        let (x, watcher) = (&mut self.x, &mut self.watcher);
        encoder.forward(x, &self.sequences, depth, in_f32, threads(), watcher)
    }
}

/// Shows tensors to one who expects them.
struct Watcher<'a> {
    heads: i64,
    hidden: i64,
    /// The layer before the first that is computed.
    first: usize,
    watch: &'a mut dyn Watch,
}

impl plmkit_cpu::Watch for Watcher<'_> {
    type Error = EsmError;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), EsmError> {
        let hidden = self.hidden;
        // What goes into a later layer has come out of the one before.
        if layer == 0 && self.first > 0 {
            return Ok(());
        }
        self.watch.hidden(self.first + layer, &|| {
            Ok(Tensor::f_from_slice(x)?.f_view([-1, hidden])?)
        })
    }

    fn attention(&mut self, qkv: &[f32]) -> Result<(), EsmError> {
        let (heads, head_dim) = (self.heads, self.hidden / self.heads);
        self.watch
            .attention(&|| Ok(Tensor::f_from_slice(qkv)?.f_view([-1, 3, heads, head_dim])?))
    }
}
