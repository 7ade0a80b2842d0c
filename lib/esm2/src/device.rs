//! Where the model runs.

mod driver;
mod library;

use std::env;
use std::fmt;
use std::str::FromStr;

use plmkit_contract::{Exit, Failure};
use serde::{Deserialize, Serialize};

use driver::{DriverError, Gpu, gpus};

/// A device as it is asked for on a command line: `auto`, `cpu`, `cuda`, `cuda:N` or `all`.
///
/// ```
/// use plmkit_esm2::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
/// assert!("gpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The best one that can be used.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// One CUDA device, counted from 0 among those that are visible.
    Cuda(usize),
    /// Every visible CUDA device.
    All,
}

/// A text that names no device.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu, cuda, cuda:N or all")]
pub struct ParseDeviceError;

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
    #[error("device '{device}': the NVIDIA driver does not work: {found}")]
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
    #[error("device '{device}', {name}, needs libtorch for CUDA, which cannot be loaded: {found}")]
    NoLibrary {
        /// What was asked for.
        device: Device,
        /// The GPU.
        name: String,
        /// The loader's words.
        found: String,
    },
}

/// The least compute capability that CUDA 13, with which libtorch is built, compiles for: Turing's.
const LEAST_CAPABILITY: (i32, i32) = (7, 5);

/// A device that can be used.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    /// For libtorch.
    pub(crate) device: tch::Device,
    /// Its compute capability, where it is a GPU.
    pub(crate) capability: Option<(i32, i32)>,
}

impl Opened {
    const CPU: Self = Self {
        device: tch::Device::Cpu,
        capability: None,
    };
}

impl Device {
    /// The libtorch device, once it is known to be usable. `auto` is the first GPU where one is, and the CPU elsewhere: if
    /// there is a GPU that cannot be used, a warning says why.
    pub(crate) fn open(self) -> Result<Opened, DeviceError> {
        match self {
            Self::Cpu => Ok(Opened::CPU),
            Self::Auto => Ok(Self::Cuda(0).open().unwrap_or_else(|error| {
                match &error {
                    DeviceError::NoDriver { .. } => {}
                    DeviceError::NoSuchGpu { found, .. } if found.is_empty() => {}
                    _ => tracing::warn!("{error}; the run is on the CPU"),
                }
                Opened::CPU
            })),
            // One process computes on one.
            Self::Cuda(_) | Self::All => {
                let index = if let Self::Cuda(index) = self {
                    index
                } else {
                    0
                };
                let gpu = self.among(gpus(), index)?;
                library::load().map_err(|found| DeviceError::NoLibrary {
                    device: self,
                    name: gpu.name,
                    found,
                })?;
                Ok(Opened {
                    device: tch::Device::Cuda(index),
                    capability: Some(gpu.capability),
                })
            }
        }
    }

    /// That it can be used, as far as can be told without using it.
    pub fn check(self) -> Result<(), DeviceError> {
        match self {
            Self::Auto | Self::Cpu => Ok(()),
            Self::Cuda(_) | Self::All => self.open().map(drop),
        }
    }

    /// Whether it is a CPU, once it is known to be usable.
    pub fn is_cpu(self) -> Result<bool, DeviceError> {
        Ok(self.open()?.device == tch::Device::Cpu)
    }

    /// The name of a GPU, as the driver calls it.
    pub(crate) fn gpu_name(index: usize) -> Result<String, DeviceError> {
        Ok(Self::Cuda(index).among(gpus(), index)?.name)
    }

    /// The GPUs that this process may use, each for a process of its own.
    pub fn each_gpu() -> Result<Vec<OwnGpu>, DeviceError> {
        let found = gpus();
        let count = found.as_ref().map_or(0, Vec::len);
        Self::All.among(found, 0)?;
        let visible = env::var(CUDA_VISIBLE_DEVICES).unwrap_or_default();
        Ok(one_each(&visible, count))
    }

    /// The lasting names of its GPUs; `None` where it is none or the driver does not say.
    pub fn gpu_uuids(self) -> Option<Vec<String>> {
        let mut gpus = match self {
            Self::Auto | Self::Cpu => return None,
            Self::Cuda(_) | Self::All => gpus().ok()?,
        };
        if let Self::Cuda(index) = self {
            gpus = vec![gpus.into_iter().nth(index)?];
        }
        gpus.into_iter().map(|gpu| gpu.uuid).collect()
    }

    /// The GPU `index` of those that the driver tells of.
    fn among(self, found: Result<Vec<Gpu>, DriverError>, index: usize) -> Result<Gpu, DeviceError> {
        let device = self;
        let mut gpus = found.map_err(|error| match error {
            DriverError::Missing(found) => DeviceError::NoDriver { device, found },
            DriverError::Failed(found) => DeviceError::Driver { device, found },
        })?;
        if index >= gpus.len() {
            let found = gpus.into_iter().map(|gpu| gpu.name).collect();
            return Err(DeviceError::NoSuchGpu { device, found });
        }
        let gpu = gpus.swap_remove(index);
        if gpu.capability < LEAST_CAPABILITY {
            return Err(DeviceError::TooOld {
                device,
                name: gpu.name,
                capability: gpu.capability,
            });
        }
        Ok(gpu)
    }
}

/// The variable that says which GPUs CUDA shows to a process.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A GPU, or an instance of one, as a process of its own gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnGpu {
    /// What the process is to compute on.
    pub device: Device,
    /// What [`CUDA_VISIBLE_DEVICES`] is to be for it; `None` for what it is here.
    pub visible: Option<String>,
}

/// `count` GPUs, which is what CUDA shows of those in `visible`. Of instances of GPUs (MIG) it shows a process only the first:
/// each process has to be given another.
fn one_each(visible: &str, count: usize) -> Vec<OwnGpu> {
    let named: Vec<&str> = visible.split(',').map(str::trim).collect();
    if named[0].starts_with("MIG-") {
        let instances = named.into_iter().filter(|name| name.starts_with("MIG-"));
        return instances
            .map(|name| OwnGpu {
                device: Device::Cuda(0),
                visible: Some(name.to_owned()),
            })
            .collect();
    }
    (0..count)
        .map(|index| OwnGpu {
            device: Device::Cuda(index),
            visible: None,
        })
        .collect()
}

/// Names, or that there are none.
fn listed(names: &[String]) -> String {
    match names {
        [] => "no GPU".to_owned(),
        [one] => format!("one GPU: {one}"),
        several => format!("{} GPUs: {}", several.len(), several.join(", ")),
    }
}

impl Failure for DeviceError {
    fn exit(&self) -> Exit {
        Exit::Unavailable
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::All => f.write_str("all"),
        }
    }
}

impl FromStr for Device {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "all" => Ok(Self::All),
            _ => text
                .strip_prefix("cuda:")
                .filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|index| index.parse().ok())
                .map(Self::Cuda)
                .ok_or(ParseDeviceError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_back_from_its_name() {
        for device in [
            Device::Auto,
            Device::Cpu,
            Device::Cuda(0),
            Device::Cuda(11),
            Device::All,
        ] {
            assert_eq!(device.to_string().parse(), Ok(device));
        }
        for text in [
            "",
            "CPU",
            "cuda:",
            "cuda:-1",
            "cuda:+1",
            "cuda:1,2",
            "cuda:99999999999999999999",
        ] {
            assert_eq!(text.parse::<Device>(), Err(ParseDeviceError), "{text}");
        }
    }

    fn h100() -> Gpu {
        Gpu {
            name: "NVIDIA H100".to_owned(),
            capability: (9, 0),
            uuid: None,
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let old = Gpu {
            name: "Tesla P40".to_owned(),
            capability: (6, 1),
            uuid: None,
        };
        let missing = DriverError::Missing("libcuda.so.1: not there".to_owned());
        let failed = DriverError::Failed("cuInit: out of date (803)".to_owned());
        for (found, index, expected) in [
            (
                Err(missing),
                0,
                "device 'cuda:0' needs an NVIDIA driver, and this machine has none (libcuda.so.1: not there)",
            ),
            (
                Err(failed),
                0,
                "device 'cuda:0': the NVIDIA driver does not work: cuInit: out of date (803)",
            ),
            (
                Ok(vec![]),
                0,
                "device 'cuda:0' does not exist; found no GPU",
            ),
            (
                Ok(vec![h100()]),
                1,
                "device 'cuda:1' does not exist; found one GPU: NVIDIA H100",
            ),
            (
                Ok(vec![h100(), old]),
                1,
                "device 'cuda:1', Tesla P40, has compute capability 6.1; expected at least 7.5",
            ),
        ] {
            let error = Device::Cuda(index).among(found, index).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.exit(), Exit::Unavailable);
        }
        assert_eq!(Device::Cuda(0).among(Ok(vec![h100()]), 0), Ok(h100()));
    }

    #[test]
    fn each_process_sees_its_gpu_and_keeps_what_the_scheduler_gave() {
        let gpu = |index| OwnGpu {
            device: Device::Cuda(index),
            visible: None,
        };
        assert_eq!(one_each("", 2), [gpu(0), gpu(1)]);
        assert_eq!(one_each("2,5", 2), [gpu(0), gpu(1)]);
        assert_eq!(one_each("GPU-8a,GPU-9b", 2), [gpu(0), gpu(1)]);
        let instance = |name: &str| OwnGpu {
            device: Device::Cuda(0),
            visible: Some(name.to_owned()),
        };
        let both = [instance("MIG-1"), instance("MIG-2")];
        assert_eq!(one_each("MIG-1, MIG-2", 1), both);
    }

    #[test]
    fn the_cpu_always_opens() {
        assert_eq!(Device::Cpu.open().unwrap().device, tch::Device::Cpu);
    }
}
