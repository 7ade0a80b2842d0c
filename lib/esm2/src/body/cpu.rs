//! Layers on a CPU, by plmkit's kernels.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use plmkit_cpu::{Encoder, Isa, Layer, Multiply};
use tch::{Device, Kind, Tensor};

use super::{Body, Failure, LayerObserver};
use crate::checkpoint::CheckpointFiles;
use crate::device_batch::DeviceBatch;
use crate::threads::threads;
use crate::{EsmError, ModelConfig};

/// Computes layers with plmkit's kernels.
#[derive(Debug)]
pub(crate) struct OnCpu {
    isa: Isa,
    multiply: Multiply,
    heads: usize,
    layers: Layers,
    /// That of matrix products of oneDNN, if it computes them.
    failure: Option<Failure>,
}

#[derive(Debug)]
enum Layers {
    /// All layers in memory.
    Packed(Encoder),
    /// Layers that are packed in f32 when they are computed, and dropped afterwards.
    Streamed {
        config: ModelConfig,
        /// The rotary frequencies of each layer.
        frequencies: Vec<Vec<f32>>,
        files: Arc<CheckpointFiles>,
    },
}

impl OnCpu {
    pub(crate) fn packed(
        (isa, multiply): (Isa, Multiply),
        layers: Vec<Layer>,
        heads: usize,
        failure: Option<Failure>,
    ) -> Self {
        Self {
            isa,
            multiply,
            heads,
            layers: Layers::Packed(Encoder::new(isa, layers, heads)),
            failure,
        }
    }

    pub(crate) fn streamed(
        isa: Isa,
        files: Arc<CheckpointFiles>,
        config: ModelConfig,
        frequencies: Vec<Vec<f32>>,
    ) -> Self {
        Self {
            isa,
            multiply: Multiply::F32,
            heads: config.heads,
            layers: Layers::Streamed {
                config,
                frequencies,
                files,
            },
            failure: None,
        }
    }
}

impl Body for OnCpu {
    fn kernels(&self) -> String {
        match self.failure {
            Some(_) => "onednn".to_owned(),
            None => self.isa.for_weights(self.multiply).to_string(),
        }
    }

    /// One: with more, contacts and logits would have other last bits.
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
        let flat = batch
            .own(&x)?
            .f_to_kind(Kind::Float)?
            .f_to_device(Device::Cpu)?;
        let mut values = Vec::try_from(flat.f_contiguous()?.f_flatten(0, -1)?)?; // (total_tokens, hidden)
        let sequences: Vec<Range<usize>> = batch.varlen.spans().collect();
        let mut adapter = TensorAdapter {
            heads: self.heads as i64,
            hidden: x.size2()?.1,
            first: 0,
            observer,
        };
        let mut run = |encoder: &Encoder, first: usize, depth: usize, in_f32: bool| {
            adapter.first = first;
            encoder.forward(
                &mut values,
                &sequences,
                depth,
                in_f32,
                threads(),
                &mut adapter,
            )
        };
        match &self.layers {
            Layers::Packed(encoder) => {
                // int8 weights cannot be converted to f32.
                let in_f32 = batch.kind == Kind::Float && self.multiply != Multiply::Int8;
                let done = run(encoder, 0, depth, in_f32);
                let failure = self.failure.as_ref();
                let failure = failure
                    .and_then(|place| place.lock().unwrap_or_else(PoisonError::into_inner).take());
                failure.map_or(done, Err)
            }
            Layers::Streamed {
                config,
                frequencies,
                files,
            } => {
                let kernels = (self.isa, self.multiply);
                let mut encoder = Encoder::new(self.isa, Vec::new(), self.heads);
                for (number, inv_freq) in frequencies[..depth].iter().enumerate() {
                    let before = encoder.replace(Vec::new()).pop();
                    let layer = files.layer(config, number, inv_freq.clone(), kernels, before)?;
                    encoder.replace(vec![layer]);
                    run(&encoder, number, 1, true)?;
                }
                Ok(())
            }
        }
    }
}

/// Passes values to an observer of tensors.
struct TensorAdapter<'a> {
    heads: i64,
    hidden: i64,
    /// The number of layers before those of the encoder.
    first: usize,
    observer: &'a mut dyn LayerObserver,
}

impl plmkit_cpu::LayerObserver for TensorAdapter<'_> {
    type Error = EsmError;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), EsmError> {
        let hidden = self.hidden;
        // The input of a later layer was shown as the output of the layer before.
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
