//! Attention over sequences that lie end to end.

mod one_kernel;
mod per_sequence;

use tch::Tensor;

use crate::CudaError;
use crate::device_batch::DeviceBatch;

/// Softmax attention in which a token sees only the tokens of its own sequence, without padding: by one kernel call for many sequences
/// on a GPU of this compute capability, or by one for each sequence on a CPU. Queries, keys and values,
/// `(total_tokens, 3, heads, head_dim)` with the first two rotated, to the `(total_tokens, heads·head_dim)` mix of values.
pub(crate) fn attend(
    qkv: &Tensor,
    batch: &DeviceBatch,
    capability: Option<(i32, i32)>,
) -> Result<Tensor, CudaError> {
    match capability {
        Some(capability) => one_kernel::forward(qkv, batch, capability),
        None => per_sequence::forward(qkv, batch),
    }
}
