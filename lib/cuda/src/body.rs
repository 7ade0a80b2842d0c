//! The transformer layers, and the ways to compute them on libtorch.

mod fused;
mod libtorch;

use std::fmt;

use plmkit_contract::Pooling;
use tch::Tensor;

use crate::CudaError;
use crate::device_batch::DeviceBatch;
use crate::embedding::Embedding;
use crate::pooling::pool;

pub(crate) use fused::OnGpu;
pub(crate) use libtorch::OnLibtorch;

/// The layers between the embedding and the final `LayerNorm`.
pub(crate) trait Body: fmt::Debug + Send {
    /// Returns the name of the kernels.
    fn kernels(&self) -> String;

    /// Computes layer 0 of the model: `(rows, hidden)` f32.
    fn embed(&self, embedding: &Embedding, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
        embedding.forward(batch)
    }

    /// Applies the first `depth` layers to `x`, `(rows, hidden)` f32.
    fn forward(
        &self,
        x: Tensor,
        batch: &DeviceBatch,
        depth: usize,
        observer: &mut dyn LayerObserver,
    ) -> Result<(), CudaError>;

    /// Pools hidden states, `(total_tokens, hidden)` f32, over the residues of each sequence: `(sequences, hidden)`.
    fn pool(&self, hidden: &Tensor, batch: &DeviceBatch, by: Pooling) -> Result<Tensor, CudaError> {
        pool(hidden, batch.varlen, by)
    }
}

/// Receives intermediate results of a forward pass.
pub(crate) trait LayerObserver {
    /// Receives the output of a layer, `(rows, hidden)` f32; that of layer 0 is the embedding. Only a call of `x` copies it.
    fn hidden(
        &mut self,
        layer: usize,
        x: &dyn Fn() -> Result<Tensor, CudaError>,
    ) -> Result<(), CudaError>;

    /// Receives queries, keys and values of the next layer, the first two rotated: `(rows, 3, heads, head_dim)` f32.
    fn attention(&mut self, qkv: &dyn Fn() -> Result<Tensor, CudaError>) -> Result<(), CudaError>;
}
