//! Attention over sequences that lie end to end.

mod one_kernel;
mod per_sequence;

use tch::Tensor;

use crate::CudaError;
use crate::device_batch::DeviceBatch;

/// Softmax attention in which a token sees only the tokens of its own sequence, without padding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attention {
    /// One kernel call for many sequences, on a GPU of this compute capability.
    OneKernel((i32, i32)),
    /// One call for each sequence, on a CPU.
    PerSequence,
}

impl Attention {
    /// Selects the kernel for a device: a GPU of this compute capability, or a CPU.
    pub(crate) fn new(capability: Option<(i32, i32)>) -> Self {
        capability.map_or(Self::PerSequence, Self::OneKernel)
    }

    /// Queries, keys and values, `(total_tokens, 3, heads, head_dim)` with the first two rotated, to the
    /// `(total_tokens, heads·head_dim)` mix of values.
    pub(crate) fn forward(self, qkv: &Tensor, batch: &DeviceBatch) -> Result<Tensor, CudaError> {
        match self {
            Self::OneKernel(capability) => one_kernel::forward(qkv, batch, capability),
            Self::PerSequence => per_sequence::forward(qkv, batch),
        }
    }
}
