//! A model on a CPU, by plmkit's kernels.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use plmkit_contract::{Column, Stop, Widths};
use plmkit_cpu::{Arena, Collector, Embedding, Layer, Readout};

use crate::backend::{Backend, Ticket};
use crate::threads::threads;
use crate::{Buffers, Dtype, EsmError, Varlen};

/// A model on a CPU.
pub(crate) struct CpuModel {
    pub(crate) embedding: Embedding,
    pub(crate) layers: Layers,
    pub(crate) readout: Readout,
    pub(crate) arena: Mutex<Arena>,
    pub(crate) buffers: Buffers<f32>,
    /// Values in the vectors.
    pub(crate) widths: Widths,
}

/// The transformer layers.
pub(crate) enum Layers {
    /// All layers in memory.
    Packed(Vec<Layer>),
    /// Packs a layer in f32, counted from 0. It is computed and dropped.
    Streamed(PackLayer),
}

pub(crate) type PackLayer = Box<dyn Fn(usize) -> Result<Layer, EsmError> + Send>;

impl Backend for CpuModel {
    fn submit(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        (depth, dtype): (usize, Dtype),
        stop: &Stop,
    ) -> Result<Ticket, EsmError> {
        let sequences: Vec<Range<usize>> = batch.spans().collect();
        let mut values = batch.buffers(columns, self.widths, &self.buffers);
        let places = values.iter_mut().map(|values| &mut values[..]);
        let places = columns.iter().copied().zip(places).collect();
        let mut collector = Collector::new(&self.readout, &sequences, places, threads(), stop)?;
        let mut x = self.buffers.take(batch.total_tokens() * self.widths.dim);
        self.embedding.apply(batch.tokens(), &sequences, &mut x);
        collector.hidden(0, &x)?;
        let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        let mut forward = |first, layers: &[Layer]| {
            arena.forward(&mut x, (first, layers), dtype == Dtype::F32, &mut collector)
        };
        match &self.layers {
            Layers::Packed(layers) => forward(0, &layers[..depth])?,
            Layers::Streamed(pack) => {
                for number in 0..depth {
                    forward(number, &[pack(number)?])?;
                }
            }
        }
        collector.finish()?;
        Ok(Ticket {
            columns: values,
            pending: None,
        })
    }
}
