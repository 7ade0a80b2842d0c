//! A model on a CPU, by plmkit's kernels.

use std::cell::RefCell;
use std::ops::Range;

use plmkit_contract::{Column, Stop};
use plmkit_cpu::{Collector, Embedding, Encoder, Layer, Readout};
use rayon::ThreadPool;

use crate::checkpoint::layer;
use crate::threads::threads;
use crate::{Buffer, CheckpointTensors, Dtype, EsmError, Varlen};

/// A model on a CPU.
pub(crate) struct CpuModel {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Layers,
    pub(crate) readout: Readout,
    pub(crate) encoder: RefCell<Encoder>,
}

/// The transformer layers.
pub(crate) enum Layers {
    /// All layers in memory.
    Packed(Vec<Layer>),
    /// In their files. Threads of the pool pack each in f32 when it is computed.
    Stored(Box<CheckpointTensors>, ThreadPool),
}

impl CpuModel {
    /// Computes `columns` of a batch, which need the first `depth` layers, in a type, into `values`. `x` is memory for
    /// `(total_tokens, hidden)`.
    pub(crate) fn compute(
        &self,
        batch: Varlen<'_>,
        (columns, values): (&[Column], &mut [Buffer<f32>]),
        (depth, dtype): (usize, Dtype),
        x: &mut [f32],
        stop: &Stop,
    ) -> Result<(), EsmError> {
        let sequences: Vec<Range<usize>> = batch.spans().collect();
        let places = values.iter_mut().map(|values| &mut values[..]);
        let places = columns.iter().copied().zip(places).collect();
        let mut collector = Collector::new(&self.readout, &sequences, places, threads(), stop)?;
        self.embedding.apply(batch.tokens(), &sequences, x);
        collector.hidden(0, x)?;
        let mut encoder = self.encoder.borrow_mut();
        let mut forward = |first, layers: &[Layer]| {
            encoder.forward(x, (first, layers), dtype == Dtype::F32, &mut collector)
        };
        match &self.layers {
            Layers::Packed(layers) => forward(0, &layers[..depth])?,
            Layers::Stored(tensors, pool) => {
                for number in 0..depth {
                    let kernels = (self.readout.isa, Dtype::F32);
                    let layer = pool.install(|| layer(tensors, number, kernels))?;
                    forward(number, &[layer])?;
                }
            }
        }
        collector.finish()?;
        Ok(())
    }
}
