//! Why a device cannot be used.

use std::ffi::c_int;

use plmkit_contract::{Exit, Failure};

use super::library::TORCH;
use super::{Device, LEAST_CAPABILITY};

/// What whoever asked for the best device can do without a GPU.
const ON_THE_CPU: &str = "--device cpu computes on the CPU";

/// Why a device cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The machine has no GPU driver.
    #[error("device '{device}' needs an NVIDIA driver, and this machine has none ({found})")]
    NoDriver {
        /// What was asked for.
        device: Device,
        /// The loader's words.
        found: String,
    },
    /// The driver does not work.
    #[error("device '{device}': the NVIDIA driver does not work: {found}; {ON_THE_CPU}")]
    Driver {
        /// What was asked for.
        device: Device,
        /// The driver's words.
        found: String,
    },
    /// There is no GPU of that number.
    #[error("device '{device}' does not exist; found {}", listed(.found))]
    NoSuchGpu {
        /// What was asked for.
        device: Device,
        /// The names of those that this process may use.
        found: Vec<String>,
    },
    /// libtorch has no code for the GPU.
    #[error(
        "device '{device}', {name}, has compute capability {}.{}; expected at least {}.{}",
        .capability.0, .capability.1, LEAST_CAPABILITY.0, LEAST_CAPABILITY.1
    )]
    TooOld {
        /// What was asked for.
        device: Device,
        /// The GPU.
        name: String,
        /// Its compute capability, major and minor.
        capability: (i32, i32),
    },
    /// The model is larger than the memory of the GPU.
    #[error(
        "device '{device}' has {} MiB of memory; expected more than {} MiB, the size of the model",
        .total >> 20, .needed >> 20
    )]
    TooSmall {
        /// What was asked for.
        device: Device,
        /// All memory of the device, in bytes.
        total: usize,
        /// The weights, in bytes.
        needed: usize,
    },
    /// libtorch's part for GPUs cannot be loaded.
    #[error(
        "device '{device}', {name}, needs libtorch for CUDA, which cannot be loaded: {found}; {remedy}; {ON_THE_CPU}"
    )]
    NoLibrary {
        /// What was asked for.
        device: Device,
        /// The GPU.
        name: String,
        /// The loader's words.
        found: String,
        /// What installs it.
        remedy: String,
    },
    /// The libtorch that the loader found is of another version, and its C++ interface another.
    #[error("expected libtorch {}.{}; found {version} in {folder}", TORCH.0, TORCH.1)]
    OtherTorch {
        /// Its version.
        version: String,
        /// Where it lies.
        folder: String,
    },
    /// The driver is older than the CUDA that libtorch is built with.
    #[error(
        "device '{device}', {name}: libtorch needs an NVIDIA driver for CUDA {needed} or newer; found one for CUDA {}.{}; {ON_THE_CPU}",
        .found.0, .found.1
    )]
    OldDriver {
        /// What was asked for.
        device: Device,
        /// The GPU.
        name: String,
        /// The major version of the CUDA that libtorch is built with.
        needed: c_int,
        /// The newest version of CUDA that the driver runs, major and minor.
        found: (c_int, c_int),
    },
}

impl Failure for DeviceError {
    fn exit(&self) -> Exit {
        Exit::Unavailable
    }
}

/// Names, or that there are none.
fn listed(names: &[String]) -> String {
    match names {
        [] => "no GPU".to_owned(),
        [one] => format!("one GPU: {one}"),
        several => format!("{} GPUs: {}", several.len(), several.join(", ")),
    }
}
