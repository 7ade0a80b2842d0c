//! One GPU.

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::MIB;
use super::activity::{Activity, tenth};
use super::processes::{Utilization, processes};
use super::unavailable::Unavailable;
use plmkit_logs::GpuSample;
use plmkit_logs::Throttle;

/// A GPU and what must be remembered of it from one reading to the next.
pub(super) struct Gpu {
    nvml: &'static Nvml,
    index: u32,
    // Names do not change, and are known even after the GPU is lost.
    uuid: Option<String>,
    name: Option<String>,
    activity: Option<Activity>,
    utilization: Utilization,
}

impl Gpu {
    pub(super) fn new(nvml: &'static Nvml, index: u32, unavailable: &mut Unavailable) -> Self {
        let device = unavailable.value(index, "the GPU", nvml.device_by_index(index));
        let device = device.as_ref();
        Self {
            nvml,
            index,
            uuid: device.and_then(|device| unavailable.value(index, "uuid", device.uuid())),
            name: device.and_then(|device| unavailable.value(index, "name", device.name())),
            activity: device.and_then(|device| Activity::open(nvml, device)),
            utilization: Utilization::default(),
        }
    }

    /// A row; the time and the host's columns are those of `moment`.
    pub(super) fn read(&mut self, moment: &GpuSample, unavailable: &mut Unavailable) -> GpuSample {
        let mut sample = GpuSample {
            index: Some(self.index),
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            ..moment.clone()
        };
        let mut reading = Reading {
            index: self.index,
            unavailable,
        };
        // A GPU that comes back after a reset has another handle.
        let found = self.nvml.device_by_index(self.index);
        let Some(device) = reading.value("the GPU", found) else {
            return sample;
        };
        reading.load(&device, &mut sample);
        reading.power_and_clocks(&device, &mut sample);
        reading.errors(&device, &mut sample);
        if let Some(activity) = &mut self.activity {
            reading.value("sm_active", activity.read(&device, &mut sample));
        } else {
            reading.pcie(&device, &mut sample);
        }
        let busy = self.utilization.read(&device);
        let busy = reading
            .value("utilization by process", busy)
            .unwrap_or_default();
        sample.processes = reading
            .value("processes", device.running_compute_processes())
            .map(|infos| processes(&infos, &busy));
        sample
    }
}

struct Reading<'a> {
    index: u32,
    unavailable: &'a mut Unavailable,
}

impl Reading<'_> {
    fn value<T>(&mut self, what: &'static str, value: Result<T, NvmlError>) -> Option<T> {
        self.unavailable.value(self.index, what, value)
    }

    fn load(&mut self, device: &Device, sample: &mut GpuSample) {
        if let Some(utilization) = self.value("gpu_util", device.utilization_rates()) {
            // Some drivers count a little more than there is, and readers refuse that.
            sample.gpu_util = Some(utilization.gpu.min(100));
            sample.mem_util = Some(utilization.memory.min(100));
        }
        if let Some(memory) = self.value("mem_used_mib", device.memory_info()) {
            sample.mem_used_mib = Some(memory.used / MIB);
            sample.mem_total_mib = Some(memory.total / MIB);
        }
    }

    fn power_and_clocks(&mut self, device: &Device, sample: &mut GpuSample) {
        let temperature = device.temperature(TemperatureSensor::Gpu);
        sample.temperature_c = self.value("temperature_c", temperature);
        // NVML gives milliwatts and millijoules.
        sample.power_w = self
            .value("power_w", device.power_usage())
            .map(|power| f64::from(power) / 1000.0);
        sample.power_limit_w = self
            .value("power_limit_w", device.enforced_power_limit())
            .map(|limit| f64::from(limit) / 1000.0);
        sample.energy_j = self
            .value("energy_j", device.total_energy_consumption())
            .map(|energy| energy as f64 / 1000.0);
        sample.sm_clock_mhz = self.value("sm_clock_mhz", device.clock_info(Clock::SM));
        sample.mem_clock_mhz = self.value("mem_clock_mhz", device.clock_info(Clock::Memory));
        sample.throttle = self
            .value("throttle", device.current_throttle_reasons())
            .map(throttle);
    }

    fn errors(&mut self, device: &Device, sample: &mut GpuSample) {
        // Those since the driver was loaded: the others are of all the years of the board.
        let count = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
        sample.ecc_corrected = self.value("ecc_corrected", count(MemoryError::Corrected));
        sample.ecc_uncorrected = self.value("ecc_uncorrected", count(MemoryError::Uncorrected));
    }

    /// Where there are no performance monitors. The driver counts for 20 ms in each direction, and this thread waits for it.
    fn pcie(&mut self, device: &Device, sample: &mut GpuSample) {
        let mib = |kib: u32| tenth(f64::from(kib) / 1024.0);
        let read = device.pcie_throughput(PcieUtilCounter::Receive);
        sample.pcie_rx_mib_s = self.value("pcie_rx_mib_s", read).map(mib);
        let written = device.pcie_throughput(PcieUtilCounter::Send);
        sample.pcie_tx_mib_s = self.value("pcie_tx_mib_s", written).map(mib);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_gpu_is_not_throttled() {
        assert!(!throttle(ThrottleReasons::GPU_IDLE).active());
        let both = ThrottleReasons::GPU_IDLE
            | ThrottleReasons::SW_POWER_CAP
            | ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(throttle(both).to_string(), "sw_power_cap+hw_slowdown");
    }
}
