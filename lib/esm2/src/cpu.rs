//! A model on a CPU, by plmkit's kernels.

use std::cell::RefCell;
use std::ops::Range;

use plmkit_contract::Dtype;
use plmkit_cpu::{Collector, Embedding, Encoder, Layer, Readout};
use plmkit_kit::Stop;

use crate::buffers::Buffer;
use crate::error::EsmError;
use crate::pass::Pass;
use crate::thread_pool::threads;
use crate::varlen::Varlen;

/// A model on a CPU.
pub(crate) struct CpuModel {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Layers,
    pub(crate) readout: Readout,
    pub(crate) encoder: RefCell<Encoder>,
}

/// Packs the layer of a number.
pub(crate) type PackLayer = dyn Fn(usize) -> Result<Layer, EsmError> + Send;

pub(crate) enum Layers {
    /// All layers in memory.
    Packed(Vec<Layer>),
    /// In their files. The function packs each in f32 when it is computed.
    Stored(Box<PackLayer>),
}

impl CpuModel {
    /// Computes the columns of a pass over a batch into `values`. `x` is memory for `(total_tokens, hidden)`.
    pub(crate) fn compute(
        &self,
        batch: Varlen<'_>,
        pass: &Pass,
        values: &mut [Buffer<f32>],
        x: &mut [f32],
        stop: &Stop,
    ) -> Result<(), EsmError> {
        let sequences: Vec<Range<usize>> = batch.spans().collect();
        let places = values.iter_mut().map(|values| &mut values[..]);
        let places = pass.columns.iter().copied().zip(places).collect();
        let mut collector = Collector::new(&self.readout, &sequences, places, threads(), stop)?;
        self.embedding.apply(batch.tokens(), &sequences, x);
        collector.hidden(0, x)?;
        let mut encoder = self.encoder.borrow_mut();
        let mut forward = |first, layers: &[Layer]| {
            encoder.forward(x, first, layers, pass.dtype == Dtype::F32, &mut collector)
        };
        match &self.layers {
            Layers::Packed(layers) => forward(0, &layers[..pass.depth])?,
            Layers::Stored(pack) => {
                (0..pass.depth)
                    .try_for_each(|number| Ok::<_, EsmError>(forward(number, &[pack(number)?])?))?;
            }
        }
        collector.finish()?;
        Ok(())
    }
}
