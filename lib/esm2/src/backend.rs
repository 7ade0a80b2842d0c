//! What computes batches: plmkit's kernels for a CPU, or the library for GPUs.

use plmkit_contract::{Column, Stop};

use crate::cuda::{self, MemoryAsked};
use crate::{Buffer, DeviceTimes, Dtype, EsmError, Varlen};

/// Computes batches of a loaded model.
pub(crate) trait Backend: Send {
    /// Begins to compute `columns` of a batch, which need the first `depth` layers, in a type. All heads that they need are there.
    fn submit(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        how: (usize, Dtype),
        stop: &Stop,
    ) -> Result<Ticket, EsmError>;

    /// Asks for device memory, or about it. A backend without any answers with none.
    fn memory(&self, _asked: &MemoryAsked) -> Result<Option<(u64, u64)>, EsmError> {
        Ok(None)
    }
}

/// The computation of a batch.
#[derive(Debug)]
pub enum Ticket {
    /// It is over.
    Ready(Values),
    /// A device computes while the program continues, and then copies the values.
    InTransfer(cuda::Ticket),
}

/// The values of a batch.
#[derive(Debug, Default)]
pub struct Values {
    /// For each column the values of all sequences in turn.
    pub columns: Vec<Buffer<f32>>,
    /// The device's times; `None` if the program computed the values itself.
    pub times: Option<DeviceTimes>,
}

impl Ticket {
    /// Waits for the values.
    pub fn collect(self) -> Result<Values, EsmError> {
        match self {
            Self::Ready(values) => Ok(values),
            Self::InTransfer(ticket) => ticket.collect(),
        }
    }
}
