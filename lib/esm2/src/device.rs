//! Where the model runs.

mod driver;
mod error;
mod library;

use std::env;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use driver::{DriverError, Gpu, gpus};
pub use error::DeviceError;

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
    /// The first GPU that can be used, and the CPU where there is none. A GPU that lacks nothing but libraries or a driver that works is
    /// an error, and never the CPU.
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

/// Why the best device is the CPU.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoGpu {
    #[error("this machine has no NVIDIA driver ({0})")]
    NoDriver(String),
    #[error("the NVIDIA driver shows no GPU to this process")]
    NoneVisible,
    #[error(
        "{name} has compute capability {}.{}, and libtorch needs at least {}.{}",
        .capability.0, .capability.1, LEAST_CAPABILITY.0, LEAST_CAPABILITY.1
    )]
    TooOld {
        name: String,
        capability: (i32, i32),
    },
}

impl Device {
    /// The libtorch device, once it is known to be usable.
    pub(crate) fn open(self) -> Result<Opened, DeviceError> {
        library::check_version()?;
        match self {
            Self::Cpu => Ok(Opened::CPU),
            Self::Auto => match best(gpus())? {
                Ok((index, gpu)) => self.with_library(index, gpu),
                Err(_) => Ok(Opened::CPU),
            },
            // One process computes on one.
            Self::Cuda(_) | Self::All => {
                let index = if let Self::Cuda(index) = self {
                    index
                } else {
                    0
                };
                let gpu = self.select_gpu(gpus(), index)?;
                self.with_library(index, gpu)
            }
        }
    }

    /// That it can be used, as far as can be told without using it.
    pub fn check(self) -> Result<(), DeviceError> {
        self.open().map(drop)
    }

    /// Logs a line with the reason where `auto` is the CPU.
    pub fn log_if_cpu(self) {
        if self == Self::Auto {
            match best(gpus()) {
                Ok(Err(why @ NoGpu::TooOld { .. })) => {
                    tracing::warn!("{why}: computing on the CPU");
                }
                Ok(Err(why)) => tracing::info!("{why}: computing on the CPU"),
                // An error has ended the run where the device was opened.
                Ok(Ok(_)) | Err(_) => {}
            }
        }
    }

    /// GPU `index`, once libtorch can use it.
    fn with_library(self, index: usize, gpu: Gpu) -> Result<Opened, DeviceError> {
        let device = self;
        if let Err(found) = library::load() {
            return Err(DeviceError::NoLibrary {
                device,
                name: gpu.name,
                found,
                remedy: library::remedy(),
            });
        }
        match (library::cuda_version(), driver::cuda_version()) {
            (Some((needed, _)), Some(found)) if found.0 < needed => Err(DeviceError::OldDriver {
                device,
                name: gpu.name,
                needed,
                found,
            }),
            _ => Ok(Opened {
                device: tch::Device::Cuda(index),
                capability: Some(gpu.capability),
            }),
        }
    }

    /// Whether it is a CPU, once it is known to be usable.
    pub fn is_cpu(self) -> Result<bool, DeviceError> {
        Ok(self.open()?.device == tch::Device::Cpu)
    }

    /// The name of a GPU, as the driver calls it.
    pub(crate) fn gpu_name(index: usize) -> Result<String, DeviceError> {
        Ok(Self::Cuda(index).select_gpu(gpus(), index)?.name)
    }

    /// The GPUs that this process may use, each for a process of its own.
    pub fn each_gpu() -> Result<Vec<WorkerGpu>, DeviceError> {
        let found = gpus();
        let count = found.as_ref().map_or(0, Vec::len);
        Self::All.select_gpu(found, 0)?;
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
    fn select_gpu(
        self,
        found: Result<Vec<Gpu>, DriverError>,
        index: usize,
    ) -> Result<Gpu, DeviceError> {
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

/// The first GPU that libtorch can use, or why there is none. A driver that does not work is an error: there may be a GPU behind it.
fn best(found: Result<Vec<Gpu>, DriverError>) -> Result<Result<(usize, Gpu), NoGpu>, DeviceError> {
    let mut gpus = match found {
        Ok(gpus) => gpus,
        Err(DriverError::Missing(found)) => return Ok(Err(NoGpu::NoDriver(found))),
        Err(DriverError::Failed(found)) => {
            let device = Device::Auto;
            return Err(DeviceError::Driver { device, found });
        }
    };
    let usable = gpus
        .iter()
        .position(|gpu| gpu.capability >= LEAST_CAPABILITY);
    Ok(match (usable, gpus.is_empty()) {
        (Some(index), _) => Ok((index, gpus.swap_remove(index))),
        (None, true) => Err(NoGpu::NoneVisible),
        (None, false) => {
            let Gpu {
                name, capability, ..
            } = gpus.swap_remove(0);
            Err(NoGpu::TooOld { name, capability })
        }
    })
}

/// The variable that says which GPUs CUDA shows to a process.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A GPU, or an instance of one, as a process of its own gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGpu {
    /// What the process is to compute on.
    pub device: Device,
    /// What [`CUDA_VISIBLE_DEVICES`] is to be for it; `None` for what it is here.
    pub visible: Option<String>,
}

/// `count` GPUs, which is what CUDA shows of those in `visible`. Of instances of GPUs (MIG) it shows a process only the first:
/// each process has to be given another.
fn one_each(visible: &str, count: usize) -> Vec<WorkerGpu> {
    let named: Vec<&str> = visible.split(',').map(str::trim).collect();
    if named[0].starts_with("MIG-") {
        let instances = named.into_iter().filter(|name| name.starts_with("MIG-"));
        return instances
            .map(|name| WorkerGpu {
                device: Device::Cuda(0),
                visible: Some(name.to_owned()),
            })
            .collect();
    }
    (0..count)
        .map(|index| WorkerGpu {
            device: Device::Cuda(index),
            visible: None,
        })
        .collect()
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
    use plmkit_contract::{Exit, Failure};

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
                "device 'cuda:0': the NVIDIA driver does not work: cuInit: out of date (803); --device cpu computes on the CPU",
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
            let error = Device::Cuda(index).select_gpu(found, index).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.exit(), Exit::Unavailable);
        }
        assert_eq!(Device::Cuda(0).select_gpu(Ok(vec![h100()]), 0), Ok(h100()));
    }

    #[test]
    fn the_best_is_a_gpu_that_can_be_used_and_a_driver_that_fails_is_none() {
        let old = Gpu {
            capability: (6, 1),
            ..h100()
        };
        let gpus = vec![old.clone(), h100(), h100()];
        assert_eq!(best(Ok(gpus)), Ok(Ok((1, h100()))));
        assert_eq!(best(Ok(vec![])), Ok(Err(NoGpu::NoneVisible)));
        let told = best(Ok(vec![old])).unwrap().unwrap_err().to_string();
        assert!(told.contains("compute capability 6.1"), "{told}");
        let missing = DriverError::Missing("no file".to_owned());
        let expected = NoGpu::NoDriver("no file".to_owned());
        assert_eq!(best(Err(missing)), Ok(Err(expected)));
        let failed = best(Err(DriverError::Failed("803".to_owned()))).unwrap_err();
        assert_eq!(failed.exit(), Exit::Unavailable);
    }

    #[test]
    fn each_process_sees_its_gpu_and_keeps_what_the_scheduler_gave() {
        let gpu = |index| WorkerGpu {
            device: Device::Cuda(index),
            visible: None,
        };
        assert_eq!(one_each("", 2), [gpu(0), gpu(1)]);
        assert_eq!(one_each("2,5", 2), [gpu(0), gpu(1)]);
        assert_eq!(one_each("GPU-8a,GPU-9b", 2), [gpu(0), gpu(1)]);
        let instance = |name: &str| WorkerGpu {
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
