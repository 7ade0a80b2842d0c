//! The output of a model, while it is computed and after.

use crate::cuda::Ticket;
use crate::timing::DeviceTimes;
use crate::{Buffer, EsmError};

/// An output that a device may still compute.
#[derive(Debug)]
pub enum PendingOutput {
    /// The output is complete.
    Computed(ModelOutput),
    /// A device computes it.
    OnDevice(DeviceOutput),
}

/// An output that a device computes.
#[derive(Debug)]
pub struct DeviceOutput(pub(crate) Ticket);

/// The output for a batch.
#[derive(Debug, Default)]
pub struct ModelOutput {
    /// For each column the values of all sequences in turn.
    pub columns: Vec<Buffer<f32>>,
    /// The device's times; `None` if the program computed the output itself.
    pub times: Option<DeviceTimes>,
}

impl PendingOutput {
    /// Whether the output is complete, so that [`finish`](Self::finish) does not wait.
    pub fn is_computed(&self) -> bool {
        matches!(self, Self::Computed(_))
    }

    /// Waits for the output.
    pub fn finish(self) -> Result<ModelOutput, EsmError> {
        match self {
            Self::Computed(output) => Ok(output),
            Self::OnDevice(DeviceOutput(ticket)) => {
                let (columns, times) = ticket.collect()?;
                Ok(ModelOutput { columns, times })
            }
        }
    }
}
