//! A model on a CPU, by plmkit's kernels.

use std::fmt;
use std::ops::Range;

use plmkit_contract::{Column, Stop};
use plmkit_cpu::{Collector, Embedding, Encoder, Isa, Layer, LayerObserver, Multiply, Readout};

use crate::model::Visit;
use crate::threads::threads;
use crate::{Buffer, Buffers, Dtype, EsmError, Varlen};

/// A model on a CPU.
#[derive(Debug)]
pub(crate) struct CpuModel {
    embedding: Embedding,
    multiply: Multiply,
    layers: Layers,
    readout: Readout,
    buffers: Buffers<f32>,
}

/// The transformer layers.
#[derive(Debug)]
pub(crate) enum Layers {
    /// All layers in memory.
    Packed(Encoder),
    /// Layers that are packed in f32 when they are computed, and dropped afterwards.
    Streamed {
        /// The attention heads.
        heads: usize,
        /// Packs a layer in the memory of the one before.
        pack: PackLayer,
    },
}

/// Packs a layer, counted from 0, in the memory of another one.
pub(crate) struct PackLayer(
    pub(crate) Box<dyn Fn(usize, Option<Layer>) -> Result<Layer, EsmError> + Send>,
);

impl fmt::Debug for PackLayer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("PackLayer")
    }
}

impl CpuModel {
    pub(crate) fn new(
        embedding: Embedding,
        multiply: Multiply,
        layers: Layers,
        readout: Readout,
    ) -> Self {
        Self {
            embedding,
            multiply,
            layers,
            readout,
            buffers: Buffers::default(),
        }
    }

    pub(crate) fn isa(&self) -> Isa {
        self.readout.isa
    }

    /// Returns the instruction set that the kernels use for the weights.
    pub(crate) fn kernels(&self) -> String {
        self.isa().for_weights(self.multiply).to_string()
    }

    /// Computes `columns` of a batch, which need the first `depth` layers. All heads that they need are there.
    pub(crate) fn embed(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        how: (usize, Dtype),
        stop: &Stop,
    ) -> Result<Vec<Buffer<f32>>, EsmError> {
        let sequences: Vec<Range<usize>> = batch.spans().collect();
        let size = |&column: &Column| batch.values(column, self.hidden());
        let values = columns.iter().map(size);
        let mut values: Vec<Buffer<f32>> = values.map(|size| self.buffers.take(size)).collect();
        let places = values.iter_mut().map(|values| &mut values[..]);
        let places = columns.iter().copied().zip(places).collect();
        let mut collector = Collector::new(&self.readout, &sequences, places, threads(), stop)?;
        self.forward(batch, &sequences, how, &mut collector)?;
        collector.finish()?;
        Ok(values)
    }

    /// Computes layers 0 to `depth` and calls `visit` with the output of each.
    pub(crate) fn hidden_states(
        &self,
        batch: Varlen<'_>,
        how: (usize, Dtype),
        visit: &mut Visit<'_>,
    ) -> Result<(), EsmError> {
        let sequences: Vec<Range<usize>> = batch.spans().collect();
        let mut visitor = Visitor {
            readout: &self.readout,
            visit,
        };
        self.forward(batch, &sequences, how, &mut visitor)
    }

    fn hidden(&self) -> usize {
        self.readout.final_norm.weight.len()
    }

    fn forward<O: LayerObserver>(
        &self,
        batch: Varlen<'_>,
        sequences: &[Range<usize>],
        (depth, dtype): (usize, Dtype),
        observer: &mut O,
    ) -> Result<(), EsmError>
    where
        EsmError: From<O::Error>,
    {
        let mut x = self.buffers.take(batch.total_tokens() * self.hidden());
        self.embedding.apply(batch.tokens(), sequences, &mut x);
        match &self.layers {
            Layers::Packed(encoder) => {
                // int8 weights cannot be converted to f32.
                let in_f32 = dtype == Dtype::F32 && self.multiply != Multiply::Int8;
                encoder.forward(&mut x, sequences, depth, in_f32, threads(), observer)?;
            }
            Layers::Streamed { heads, pack } => {
                if depth == 0 {
                    observer.hidden(0, &x)?;
                }
                let mut encoder = Encoder::new(self.isa(), Vec::new(), *heads);
                for first in 0..depth {
                    let before: Option<Layer> = encoder.replace(Vec::new()).pop();
                    encoder.replace(vec![(pack.0)(first, before)?]);
                    let mut renumbered = Later { first, observer };
                    encoder.forward(&mut x, sequences, 1, true, threads(), &mut renumbered)?;
                }
            }
        }
        Ok(())
    }
}

/// Passes the results of one layer on under its number.
struct Later<'a, O> {
    /// The number of layers before it.
    first: usize,
    observer: &'a mut O,
}

impl<O: LayerObserver> LayerObserver for Later<'_, O> {
    type Error = O::Error;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), O::Error> {
        // The input of a later layer was shown as the output of the layer before.
        if layer == 0 && self.first > 0 {
            return Ok(());
        }
        self.observer.hidden(self.first + layer, x)
    }

    fn attention(&mut self, qkv: &[f32]) -> Result<(), O::Error> {
        self.observer.attention(qkv)
    }
}

/// Passes every layer to a caller.
struct Visitor<'a, 'v> {
    readout: &'a Readout,
    visit: &'a mut Visit<'v>,
}

impl LayerObserver for Visitor<'_, '_> {
    type Error = EsmError;

    fn hidden(&mut self, layer: usize, x: &[f32]) -> Result<(), EsmError> {
        if layer < self.readout.layers {
            return (self.visit)(layer, x);
        }
        (self.visit)(layer, &self.readout.normalise(x, threads())?)
    }

    fn attention(&mut self, _: &[f32]) -> Result<(), EsmError> {
        Ok(())
    }
}
