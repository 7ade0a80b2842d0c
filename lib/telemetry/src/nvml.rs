//! GPUs through NVML, NVIDIA's management library, loaded at run time: no driver is needed to build or to start.

use std::collections::HashSet;
use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use crate::GpuSample;
use crate::sample::{GpuProcess, Processes, Throttle};

/// The name that the driver installs; without the `.1` it exists only beside a CUDA toolkit.
const LIBRARY: &str = "libnvidia-ml.so.1";

const MIB: u64 = 1 << 20;

/// The GPUs that the driver sees.
pub(crate) struct Gpus {
    nvml: Nvml,
    known: Vec<Identity>,
    noted: Noted,
}

/// What does not change, and is known even after the GPU is lost.
struct Identity {
    uuid: Option<String>,
    name: Option<String>,
}

impl Gpus {
    /// Loads NVML: the driver's own, or the one at `library`. The error is the reason in a few words.
    pub(crate) fn open(library: Option<&OsStr>) -> Result<Self, String> {
        let nvml = Nvml::builder()
            .lib_path(library.unwrap_or(OsStr::new(LIBRARY)))
            .init()
            .map_err(|error| reason(&error))?;
        let count = nvml.device_count().map_err(|error| reason(&error))?;
        if count == 0 {
            return Err("the driver sees no GPU".to_owned());
        }
        let mut noted = Noted::default();
        let known = (0..count)
            .map(|index| {
                let device = noted.known(index, "the GPU", nvml.device_by_index(index));
                let device = device.as_ref();
                Identity {
                    uuid: device.and_then(|device| noted.known(index, "uuid", device.uuid())),
                    name: device.and_then(|device| noted.known(index, "name", device.name())),
                }
            })
            .collect();
        Ok(Self { nvml, known, noted })
    }

    /// A row for each GPU; the time and the host's columns are those of `moment`.
    pub(crate) fn read(&mut self, moment: &GpuSample) -> Vec<GpuSample> {
        (0..)
            .zip(&self.known)
            .map(|(index, known)| read(&self.nvml, index, known, moment, &mut self.noted))
            .collect()
    }
}

fn reason(error: &NvmlError) -> String {
    match error {
        // The loader's own words; the wrapper's "a libloading error occurred" says nothing to people.
        NvmlError::LibloadingError(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn read(
    nvml: &Nvml,
    index: u32,
    known: &Identity,
    moment: &GpuSample,
    noted: &mut Noted,
) -> GpuSample {
    let mut sample = GpuSample {
        index: Some(index),
        uuid: known.uuid.clone(),
        name: known.name.clone(),
        ..moment.clone()
    };
    let Some(device) = noted.known(index, "the GPU", nvml.device_by_index(index)) else {
        return sample;
    };
    if let Some(utilization) = noted.known(index, "gpu_util", device.utilization_rates()) {
        sample.gpu_util = Some(utilization.gpu);
        sample.mem_util = Some(utilization.memory);
    }
    if let Some(memory) = noted.known(index, "mem_used_mib", device.memory_info()) {
        sample.mem_used_mib = Some(memory.used / MIB);
        sample.mem_total_mib = Some(memory.total / MIB);
    }
    let temperature = device.temperature(TemperatureSensor::Gpu);
    sample.temperature_c = noted.known(index, "temperature_c", temperature);
    sample.power_w = noted
        .known(index, "power_w", device.power_usage())
        .map(watts);
    sample.power_limit_w = noted
        .known(index, "power_limit_w", device.enforced_power_limit())
        .map(watts);
    sample.sm_clock_mhz = noted.known(index, "sm_clock_mhz", device.clock_info(Clock::SM));
    sample.throttle = noted
        .known(index, "throttle", device.current_throttle_reasons())
        .map(throttle);
    sample.processes = noted
        .known(index, "processes", device.running_compute_processes())
        .map(|processes| Processes(processes.iter().map(process).collect()));
    sample
}

/// NVML gives milliwatts.
fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

fn throttle(reasons: ThrottleReasons) -> Throttle {
    let holding = reasons.difference(ThrottleReasons::GPU_IDLE);
    Throttle(
        holding
            .iter_names()
            .map(|(name, _)| name.to_lowercase())
            .collect(),
    )
}

fn process(info: &ProcessInfo) -> GpuProcess {
    let mem_used_mib = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes / MIB),
        UsedGpuMemory::Unavailable => None,
    };
    GpuProcess {
        pid: info.pid,
        mem_used_mib,
        gpu_util: None,
    }
}

/// What was already said not to be available, so that it is said once and not each second.
#[derive(Default)]
struct Noted(HashSet<(u32, &'static str)>);

impl Noted {
    fn known<T>(
        &mut self,
        index: u32,
        what: &'static str,
        value: Result<T, NvmlError>,
    ) -> Option<T> {
        value
            .inspect_err(|error| {
                if !self.0.insert((index, what)) {
                    return;
                }
                match error {
                    NvmlError::GpuLost => tracing::warn!("gpu {index} is lost: {error}"),
                    error => tracing::info!("gpu {index}: {what} is not available: {error}"),
                }
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason_and_no_panic() {
        let reason = Gpus::open(Some(OsStr::new("/nonexistent/libnvidia-ml.so")))
            .err()
            .unwrap();
        assert!(reason.contains("/nonexistent/libnvidia-ml.so"), "{reason}");
    }

    #[test]
    fn an_idle_gpu_is_not_throttled() {
        assert!(!throttle(ThrottleReasons::GPU_IDLE).active());
        let both = ThrottleReasons::GPU_IDLE
            | ThrottleReasons::SW_POWER_CAP
            | ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(throttle(both).to_string(), "sw_power_cap+hw_slowdown");
    }

    #[test]
    fn what_is_not_available_is_said_once() {
        let mut noted = Noted::default();
        assert_eq!(
            noted.known::<u32>(0, "power_w", Err(NvmlError::NotSupported)),
            None
        );
        assert_eq!(noted.known(0, "power_w", Ok(3)), Some(3));
        assert_eq!(
            noted.known::<u32>(0, "power_w", Err(NvmlError::NotSupported)),
            None
        );
        assert_eq!(noted.0.len(), 1);
    }
}
