//! Why a device cannot be used.

use plmkit_contract::{Exit, Failure};
use plmkit_gpu::GpuError;

use super::Device;

/// Advice for a device that cannot be used.
pub const ON_THE_CPU: &str = "--device cpu computes on the CPU";

/// Why a device cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The driver does not work.
    #[error("device '{device}': the NVIDIA driver does not work: {found}; {ON_THE_CPU}")]
    Driver {
        /// The device that was asked for.
        device: Device,
        /// The driver's words.
        found: String,
    },
    /// The model is larger than the memory of the GPU.
    #[error(
        "device '{device}' has {} MiB of memory; expected more than {} MiB, the size of the model",
        .total >> 20, .needed >> 20
    )]
    TooSmall {
        /// The device that was asked for.
        device: Device,
        /// The total memory of the device in bytes.
        total: usize,
        /// The size of the weights in bytes.
        needed: usize,
    },
    /// The machine lacks a GPU or library, or has one of another version: what was expected and found.
    #[error("{0}")]
    Unavailable(String),
}

impl DeviceError {
    /// Returns the error for a driver that was asked for GPUs.
    pub(super) fn from_driver(device: Device, error: &GpuError) -> Self {
        if error.is_missing_driver() {
            return Self::Unavailable(format!(
                "device '{device}' needs an NVIDIA driver, and this machine has none ({})",
                driver_reason(error)
            ));
        }
        Self::Driver {
            device,
            found: driver_reason(error),
        }
    }
}

/// Returns the words of the driver or the loader.
pub(super) fn driver_reason(error: &GpuError) -> String {
    match error {
        GpuError::Driver { call, code, reason } => format!("{call}: {reason} ({code})"),
        other => other.to_string(),
    }
}

impl Failure for DeviceError {
    fn exit(&self) -> Exit {
        Exit::Unavailable
    }
}
