//! The GPUs of a device.

use std::env;

pub use plmkit_gpu::driver_version;
use plmkit_gpu::{Gpu, GpuError, driver_cuda_version, gpus};

use crate::cuda::interface::{Note, OpeningGpu};
use crate::device::Device;
use crate::error::{EsmError, ON_THE_CPU};

/// The least compute capability that CUDA 13, and so libtorch, supports: Turing's.
const MIN_CAPABILITY: (i32, i32) = (7, 5);
/// The CUDA version of libtorch. Release 580 of the driver is the first that supports it.
const CUDA: i32 = 13;

impl Device {
    /// Returns the GPU of the device, if the driver has it and libtorch supports it; `None` for the CPU.
    pub(crate) fn gpu(self) -> Result<Option<OpeningGpu>, EsmError> {
        if self == Self::Cpu {
            return Ok(None);
        }
        let gpu = self.select(gpus())?.ok();
        if let Some(gpu) = &gpu {
            check_cuda(gpu, driver_cuda_version())?;
        }
        Ok(gpu)
    }

    /// Logs the reason if `auto` is the CPU.
    pub fn log_if_cpu(self) {
        // Opening the device has reported errors.
        if self == Self::Auto
            && let Ok(Err(why)) = self.select(gpus())
        {
            why.log();
        }
    }

    /// Returns the visible GPUs, each for a process.
    pub fn each_gpu() -> Result<Vec<WorkerGpu>, EsmError> {
        Self::All.gpu()?;
        let count = gpus().map_or(0, |found| found.len());
        let visible = env::var(CUDA_VISIBLE_DEVICES).unwrap_or_default();
        Ok(one_each(visible.trim(), count))
    }

    /// Returns the GPUs of the device; none for the CPU, or if the driver does not tell.
    pub fn gpus(self) -> Vec<Gpu> {
        let mut all = gpus().unwrap_or_default();
        if self == Self::All {
            return all;
        }
        let own = self.gpu().ok().flatten();
        let own = own.map(|own| all.swap_remove(own.index));
        own.into_iter().collect()
    }

    /// Returns the GPU of the device among those that the driver has `found`, or why `auto` is the CPU. A process computes on one of
    /// `all`. A broken driver is an error for `auto` too, because there may be a GPU.
    fn select(
        self,
        found: Result<Vec<Gpu>, GpuError>,
    ) -> Result<Result<OpeningGpu, Note>, EsmError> {
        let refuse = |is_warning: bool, cpu: String, other: String| match self {
            Self::Auto => Ok(Err(Note {
                warning: is_warning,
                text: format!("{cpu}: computing on the CPU"),
            })),
            _ => Err(EsmError::unavailable(format!("device '{self}'{other}"))),
        };
        let gpus = match found {
            Ok(gpus) => gpus,
            Err(error) if error.is_missing_driver() => {
                return refuse(
                    false,
                    format!("this machine has no NVIDIA driver ({error})"),
                    format!(" needs an NVIDIA driver, and this machine has none ({error})"),
                );
            }
            Err(GpuError::Driver { call, code, reason }) => {
                let found = format!("{call}: {reason} ({code})");
                return Err(EsmError::of_driver(self, &found));
            }
            Err(other) => return Err(EsmError::of_driver(self, &other.to_string())),
        };
        let is_usable = |gpu: &Gpu| gpu.capability >= MIN_CAPABILITY;
        let index = match self {
            Self::Auto => gpus.iter().position(is_usable).unwrap_or(0),
            Self::Cuda(index) => index,
            Self::All | Self::Cpu => 0,
        };
        let (least, least_minor) = MIN_CAPABILITY;
        match gpus.get(index) {
            Some(gpu) if is_usable(gpu) => Ok(Ok(OpeningGpu {
                device: self,
                name: gpu.name.clone(),
                index,
                capability: gpu.capability,
            })),
            Some(old) => {
                let (name, (major, minor)) = (&old.name, old.capability);
                let has = format!("has compute capability {major}.{minor}");
                refuse(
                    true,
                    format!("{name} {has}, and libtorch needs at least {least}.{least_minor}"),
                    format!(", {name}, {has}; expected at least {least}.{least_minor}"),
                )
            }
            None => refuse(
                false,
                "the NVIDIA driver shows no GPU to this process".to_owned(),
                format!(" does not exist; found {}", list_names(&gpus)),
            ),
        }
    }
}

/// Refuses a driver that supports only an older CUDA than libtorch's. One that does not tell is refused by CUDA itself.
fn check_cuda(gpu: &OpeningGpu, found: Option<(i32, i32)>) -> Result<(), EsmError> {
    let Some((major, minor)) = found.filter(|(major, _)| *major < CUDA) else {
        return Ok(());
    };
    let OpeningGpu { device, name, .. } = gpu;
    Err(EsmError::unavailable(format!(
        "device '{device}', {name}: libtorch needs an NVIDIA driver for CUDA {CUDA} or newer; found one for CUDA \
         {major}.{minor}; release 580 of the driver, or NVIDIA's cuda-compat-{CUDA}-0 on LD_LIBRARY_PATH, \
         supports it; {ON_THE_CPU}"
    )))
}

/// The environment variable with the GPUs that CUDA shows to a process.
pub const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A GPU, or an instance of one, for a child process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGpu {
    /// The device of the process.
    pub device: Device,
    /// The process's [`CUDA_VISIBLE_DEVICES`]; `None` to inherit it.
    pub visible: Option<String>,
}

/// Returns the newest CUDA version that the driver supports: `13.0`.
pub fn cuda_version() -> Option<String> {
    let (major, minor) = driver_cuda_version()?;
    Some(format!("{major}.{minor}"))
}

/// Returns the GPUs for processes: `count` GPUs, or the GPU instances (MIG) in `visible`. CUDA shows a process only the
/// first instance, so that each process gets its own `CUDA_VISIBLE_DEVICES`.
fn one_each(visible: &str, count: usize) -> Vec<WorkerGpu> {
    let worker = |index: usize, visible: Option<&str>| WorkerGpu {
        device: Device::Cuda(index),
        visible: visible.map(str::to_owned),
    };
    if !visible.starts_with("MIG-") {
        return (0..count).map(|index| worker(index, None)).collect();
    }
    let names = visible.split(',').map(str::trim);
    let instances = names.filter(|name| name.starts_with("MIG-"));
    instances.map(|name| worker(0, Some(name))).collect()
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

#[cfg(test)]
mod tests {
    use plmkit_kit::{Exit, Failure};

    use super::*;

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
            let error = Device::Cuda(index).select(found).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.exit(), Exit::Unavailable);
        }
        let found = Device::Cuda(0).select(Ok(vec![h100()])).unwrap().unwrap();
        assert_eq!((found.index, &*found.name), (0, "NVIDIA H100"));
    }

    #[test]
    fn a_driver_of_an_older_cuda_is_refused_with_a_remedy() {
        let h100 = Device::Auto.select(Ok(vec![h100()])).unwrap().unwrap();
        let error = check_cuda(&h100, Some((12, 4))).unwrap_err();
        let expected = "device 'auto', NVIDIA H100: libtorch needs an NVIDIA driver for CUDA 13 or newer; found one for \
             CUDA 12.4; release 580 of the driver, or NVIDIA's cuda-compat-13-0 on LD_LIBRARY_PATH, supports it; \
             --device cpu computes on the CPU";
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.exit(), Exit::Unavailable);
        for newer in [Some((13, 0)), Some((14, 1)), None] {
            assert_eq!(check_cuda(&h100, newer), Ok(()));
        }
    }

    #[test]
    fn auto_is_the_first_supported_gpu_and_a_broken_driver_is_an_error() {
        let old = gpu("Tesla P40", (6, 1));
        let gpus = vec![old.clone(), h100(), h100()];
        let best = |found| Device::Auto.select(found);
        assert_eq!(best(Ok(gpus)).unwrap().unwrap().index, 1);
        let reason = |found| best(found).unwrap().unwrap_err();
        for (found, warning, text) in [
            (
                Ok(vec![]),
                false,
                "driver shows no GPU to this process: ".to_owned(),
            ),
            (
                Ok(vec![old]),
                true,
                "compute capability 6.1, and ".to_owned(),
            ),
            (
                Err(missing()),
                false,
                format!("no NVIDIA driver ({}): ", missing()),
            ),
        ] {
            let why = reason(found);
            assert!(
                why.warning == warning && why.text.contains(&text),
                "{why:?}"
            );
            assert!(why.text.ends_with(": computing on the CPU"), "{why:?}");
        }
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
    }
}
