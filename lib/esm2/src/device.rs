//! The device of a model.

mod error;

use std::env;
use std::fmt;
use std::str::FromStr;

pub use plmkit_gpu::driver_version;
use plmkit_gpu::{Gpu, GpuError, driver_cuda_version, gpus};
use serde::{Deserialize, Serialize};

use crate::cuda::OpeningGpu;

use error::driver_reason;
pub use error::{DeviceError, ON_THE_CPU};

/// A device on a command line: `auto`, `cpu`, `cuda`, `cuda:N` or `all`.
///
/// ```
/// use plmkit_esm2::Device;
/// assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
/// assert_eq!("cuda:1".parse(), Ok(Device::Cuda(1)));
/// assert!("gpu".parse::<Device>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// The first usable GPU, or the CPU if there is no GPU. A GPU without its libraries or with a broken driver is an error.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device, counted from 0 among the visible ones.
    Cuda(usize),
    /// Every visible CUDA device.
    All,
}

/// The least compute capability that CUDA 13, and so libtorch, supports: Turing's.
const MIN_CAPABILITY: (i32, i32) = (7, 5);

/// Why `auto` is the CPU.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoGpu {
    #[error("this machine has no NVIDIA driver ({0})")]
    NoDriver(String),
    #[error("the NVIDIA driver shows no GPU to this process")]
    NoneVisible,
    #[error(
        "{name} has compute capability {}.{}, and libtorch needs at least {}.{}",
        .capability.0, .capability.1, MIN_CAPABILITY.0, MIN_CAPABILITY.1
    )]
    TooOld {
        name: String,
        capability: (i32, i32),
    },
}

impl Device {
    /// Returns the GPU of the device, if the driver has it and libtorch supports it; `None` for the CPU.
    pub(crate) fn gpu(self) -> Result<Option<OpeningGpu>, DeviceError> {
        let (index, gpu) = match self {
            Self::Cpu => return Ok(None),
            Self::Auto => match best(gpus())? {
                Ok(found) => found,
                Err(_) => return Ok(None),
            },
            // A process computes on one device.
            Self::All => (0, self.select_gpu(gpus(), 0)?),
            Self::Cuda(index) => (index, self.select_gpu(gpus(), index)?),
        };
        Ok(Some(OpeningGpu {
            device: self,
            name: gpu.name,
            index,
            capability: gpu.capability,
        }))
    }

    /// Logs the reason if `auto` is the CPU.
    pub fn log_if_cpu(self) {
        if self == Self::Auto {
            match best(gpus()) {
                Ok(Err(why @ NoGpu::TooOld { .. })) => {
                    tracing::warn!("{why}: computing on the CPU");
                }
                Ok(Err(why)) => tracing::info!("{why}: computing on the CPU"),
                // Opening the device has reported errors.
                Ok(Ok(_)) | Err(_) => {}
            }
        }
    }

    /// Returns the visible GPUs, each for a worker process.
    pub fn each_gpu() -> Result<Vec<WorkerGpu>, DeviceError> {
        let found = gpus();
        let count = found.as_ref().map_or(0, Vec::len);
        Self::All.select_gpu(found, 0)?;
        let visible = env::var(CUDA_VISIBLE_DEVICES).unwrap_or_default();
        Ok(one_each(&visible, count))
    }

    /// Returns the GPUs of the device; none for the CPU, or if the driver does not tell.
    pub fn gpus(self) -> Vec<Gpu> {
        let mut all = gpus().unwrap_or_default();
        match self {
            Self::All => all,
            _ => match self.gpu() {
                Ok(Some(own)) => vec![all.swap_remove(own.index)],
                Ok(None) | Err(_) => Vec::new(),
            },
        }
    }

    /// Returns GPU `index` of those that the driver has `found`.
    fn select_gpu(
        self,
        found: Result<Vec<Gpu>, GpuError>,
        index: usize,
    ) -> Result<Gpu, DeviceError> {
        let mut gpus = found.map_err(|error| DeviceError::from_driver(self, &error))?;
        if index >= gpus.len() {
            return Err(DeviceError::Unavailable(format!(
                "device '{self}' does not exist; found {}",
                list_names(&gpus)
            )));
        }
        let gpu = gpus.swap_remove(index);
        let ((major, minor), (least_major, least_minor)) = (gpu.capability, MIN_CAPABILITY);
        if gpu.capability < MIN_CAPABILITY {
            return Err(DeviceError::Unavailable(format!(
                "device '{self}', {}, has compute capability {major}.{minor}; expected at least {least_major}.{least_minor}",
                gpu.name
            )));
        }
        Ok(gpu)
    }
}

/// Returns the first GPU that libtorch supports, or why there is none. A broken driver is an error because there may be a GPU.
fn best(found: Result<Vec<Gpu>, GpuError>) -> Result<Result<(usize, Gpu), NoGpu>, DeviceError> {
    let mut gpus = match found {
        Ok(gpus) => gpus,
        Err(error) if error.is_missing_driver() => {
            return Ok(Err(NoGpu::NoDriver(driver_reason(&error))));
        }
        Err(error) => return Err(DeviceError::from_driver(Device::Auto, &error)),
    };
    let usable = gpus.iter().position(|gpu| gpu.capability >= MIN_CAPABILITY);
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

/// The environment variable with the GPUs that CUDA shows to a process.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A GPU, or an instance of one, for a worker process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGpu {
    /// The device of the process.
    pub device: Device,
    /// The process's [`CUDA_VISIBLE_DEVICES`]; `None` to inherit it.
    pub visible: Option<String>,
}

impl WorkerGpu {
    /// Returns the name of the GPU instance, or else the UUID of the GPU; `None` on the CPU, or if the driver does not tell.
    pub fn uuid(&self) -> Option<String> {
        let uuid = || self.device.gpus().into_iter().next()?.uuid;
        self.visible.clone().or_else(uuid)
    }
}

/// Returns the newest CUDA version that the driver supports: `13.0`.
pub fn cuda_version() -> Option<String> {
    let (major, minor) = driver_cuda_version()?;
    Some(format!("{major}.{minor}"))
}

/// Returns the GPUs for worker processes: `count` GPUs, or the GPU instances (MIG) in `visible`. CUDA shows a process only the
/// first instance, so that each process gets its own `CUDA_VISIBLE_DEVICES`.
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

/// Returns the count and names of GPUs.
fn list_names(gpus: &[Gpu]) -> String {
    let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    match names[..] {
        [] => "no GPU".to_owned(),
        [one] => format!("one GPU: {one}"),
        _ => format!("{} GPUs: {}", names.len(), names.join(", ")),
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
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
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
                .ok_or("expected auto, cpu, cuda, cuda:N or all"),
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
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
    }

    fn gpu(name: &str, capability: (i32, i32)) -> Gpu {
        Gpu {
            name: name.to_owned(),
            capability,
            uuid: None,
        }
    }

    fn h100() -> Gpu {
        gpu("NVIDIA H100", (9, 0))
    }

    fn missing() -> GpuError {
        let reason = "libcuda.so.1: cannot open shared object file: No such file or directory";
        GpuError::NoLibrary(reason.to_owned())
    }

    fn failed() -> GpuError {
        GpuError::Driver {
            call: "cuInit",
            code: 803,
            reason: "out of date".to_owned(),
        }
    }

    #[test]
    fn messages_name_what_is_missing() {
        let old = gpu("Tesla P40", (6, 1));
        for (found, index, expected) in [
            (
                Err(missing()),
                0,
                "device 'cuda:0' needs an NVIDIA driver, and this machine has none (cannot load libcuda.so.1: cannot open \
                 shared object file: No such file or directory)",
            ),
            (
                Err(failed()),
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
    fn auto_is_the_first_supported_gpu_and_a_broken_driver_is_an_error() {
        let old = gpu("Tesla P40", (6, 1));
        let gpus = vec![old.clone(), h100(), h100()];
        assert_eq!(best(Ok(gpus)), Ok(Ok((1, h100()))));
        assert_eq!(best(Ok(vec![])), Ok(Err(NoGpu::NoneVisible)));
        let reason = best(Ok(vec![old])).unwrap().unwrap_err().to_string();
        assert!(reason.contains("compute capability 6.1"), "{reason}");
        let expected = NoGpu::NoDriver(missing().to_string());
        assert_eq!(best(Err(missing())), Ok(Err(expected)));
        assert_eq!(best(Err(failed())).unwrap_err().exit(), Exit::Unavailable);
    }

    #[test]
    fn each_worker_has_its_gpu_and_the_scheduler_s_selection() {
        let worker = |index, visible: Option<&str>| WorkerGpu {
            device: Device::Cuda(index),
            visible: visible.map(str::to_owned),
        };
        for visible in ["", "2,5", "GPU-8a,GPU-9b"] {
            assert_eq!(one_each(visible, 2), [worker(0, None), worker(1, None)]);
        }
        let both = [worker(0, Some("MIG-1")), worker(0, Some("MIG-2"))];
        assert_eq!(one_each("MIG-1, MIG-2", 1), both);
        assert_eq!(
            both.map(|worker| worker.uuid()),
            [Some("MIG-1"), Some("MIG-2")].map(|name| name.map(str::to_owned))
        );
        let on_cpu = WorkerGpu {
            device: Device::Cpu,
            visible: None,
        };
        assert_eq!(on_cpu.uuid(), None);
    }
}
