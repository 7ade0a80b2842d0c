//! The layers of a model, and the ways to compute them.

mod cpu;
mod fused;
mod libtorch;

use std::fmt;
use std::num::NonZeroUsize;

use plmkit_contract::Pooling;
use tch::Tensor;

use crate::EsmError;
use crate::device_batch::DeviceBatch;
use crate::embedding::Embedding;
use crate::pooling::pool;
use crate::threads::threads;

pub(crate) use cpu::{OnCpu, Streamed};
pub(crate) use fused::OnGpu;
pub(crate) use libtorch::OnLibtorch;

/// The layers between the embedding and the final `LayerNorm`.
pub(crate) trait Body: fmt::Debug + Send {
    /// The name of what computes.
    fn kernels(&self) -> String;

    /// The threads that libtorch may use for what comes before and after the layers.
    fn libtorch_threads(&self) -> NonZeroUsize {
        threads()
    }

    /// Layer 0 of the model: `(rows, hidden)` f32.
    fn embed(&self, embedding: &Embedding, batch: &DeviceBatch) -> Result<Tensor, EsmError> {
        embedding.forward(batch)
    }

    /// Takes `x`, `(rows, hidden)` f32, through the first `depth` layers.
    fn forward(
        &self,
        x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), EsmError>;

    /// Pools hidden states, `(total_tokens, hidden)` f32, over the residues of each sequence: `(sequences, hidden)`.
    fn pool(&self, hidden: &Tensor, batch: &DeviceBatch, by: Pooling) -> Result<Tensor, EsmError> {
        pool(hidden, batch.varlen, by)
    }
}

/// Someone who is shown what is computed.
pub(crate) trait LayerObserver {
    /// The output of a layer, `(rows, hidden)` f32; of layer 0, the embedding. It is copied only where it is asked for.
    fn hidden(
        &mut self,
        layer: usize,
        x: &dyn Fn() -> Result<Tensor, EsmError>,
    ) -> Result<(), EsmError>;

    /// Queries, keys and values of the next layer, the first two rotated: `(rows, 3, heads, head_dim)` f32.
    fn attention(&mut self, qkv: &dyn Fn() -> Result<Tensor, EsmError>) -> Result<(), EsmError>;
}
