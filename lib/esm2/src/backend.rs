//! What computes batches: plmkit's kernels for a CPU, or the library for GPUs.

use plmkit_contract::{Column, Stop};

use crate::cuda::{MemoryAsked, Pending};
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
#[derive(Debug, Default)]
pub struct Ticket {
    /// For each column the values of all sequences in turn, once they are there.
    pub(crate) columns: Vec<Buffer<f32>>,
    /// Present while a device computes and then copies the values. The program continues.
    pub(crate) pending: Option<Pending>,
}

impl Ticket {
    /// Whether a device computes the values while the program continues.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Waits for the values of each column, and for the device's times; `None` if the program computed the values itself.
    pub fn collect(mut self) -> Result<(Vec<Buffer<f32>>, Option<DeviceTimes>), EsmError> {
        let times = match self.pending {
            Some(pending) => pending.collect(&mut self.columns)?,
            None => None,
        };
        Ok((self.columns, times))
    }
}
