//! Attention over sequences that lie end to end.

mod one_kernel;
mod per_sequence;

use std::fmt;

use tch::Tensor;

use crate::EsmError;
use crate::compute_options::ComputePlan;
use crate::device_batch::DeviceBatch;

use per_sequence::PerSequence;

pub(crate) use one_kernel::OneKernel;

/// Softmax attention in which a token sees the tokens of its own sequence, all of them, and no others.
pub(crate) trait Attention: fmt::Debug + Send {
    /// Queries, keys and values, `(total_tokens, 3, heads, head_dim)` with the first two rotated, to the
    /// `(total_tokens, heads·head_dim)` mix of values.
    fn forward(&self, qkv: &Tensor, batch: &DeviceBatch) -> Result<Tensor, EsmError>;
}

/// libtorch's way without padding on a device.
pub(crate) fn attention_on(method: ComputePlan) -> Box<dyn Attention> {
    match method.capability {
        Some(capability) => Box::new(OneKernel { capability }),
        None => Box::new(PerSequence),
    }
}
