//! A model on a CPU, by plmkit's kernels.

use std::ops::Range;

use plmkit_contract::{Column, Stop, Widths};
use plmkit_cpu::{Collector, Embedding, Encoder, Layer, Readout};

use crate::backend::{Backend, Ticket, Values};
use crate::threads::threads;
use crate::{Buffers, Dtype, EsmError, Varlen};

/// A model on a CPU.
pub(crate) struct CpuModel {
    pub(crate) embedding: Embedding,
    /// The type of matrix products in the layers.
    pub(crate) dtype: Dtype,
    pub(crate) layers: Layers,
    pub(crate) readout: Readout,
    pub(crate) buffers: Buffers<f32>,
    /// Values in the vectors.
    pub(crate) widths: Widths,
}

/// The transformer layers.
pub(crate) enum Layers {
    /// All layers in memory.
    Packed(Encoder),
    /// Layers that are packed in f32 when they are computed, and dropped afterwards.
    Streamed {
        /// The attention heads.
        heads: usize,
        pack: PackLayer,
    },
}

/// Packs a layer, counted from 0, in the memory of another one.
pub(crate) type PackLayer = Box<dyn Fn(usize, Option<Layer>) -> Result<Layer, EsmError> + Send>;

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
        let threads = threads();
        let mut collector = Collector::new(&self.readout, &sequences, places, threads, stop)?;
        let mut x = self.buffers.take(batch.total_tokens() * self.widths.dim);
        self.embedding.apply(batch.tokens(), &sequences, &mut x);
        match &self.layers {
            Layers::Packed(encoder) => {
                // int8 weights cannot be converted to f32.
                let in_f32 = dtype == Dtype::F32 && self.dtype != Dtype::Int8;
                encoder.forward(&mut x, &sequences, depth, in_f32, threads, &mut collector)?;
            }
            Layers::Streamed { heads, pack } => {
                let mut encoder = Encoder::new(self.readout.isa, Vec::new(), *heads);
                if depth == 0 {
                    encoder.forward(&mut x, &sequences, 0, true, threads, &mut collector)?;
                }
                for number in 0..depth {
                    let before = encoder.replace(number, Vec::new()).pop();
                    encoder.replace(number, vec![pack(number, before)?]);
                    encoder.forward(&mut x, &sequences, 1, true, threads, &mut collector)?;
                }
            }
        }
        collector.finish()?;
        Ok(Ticket::Ready(Values {
            columns: values,
            times: None,
        }))
    }
}
