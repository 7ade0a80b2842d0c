//! One GPU.

use std::collections::HashSet;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor,
};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use plmkit_logs::{GpuSample, Throttle};

use super::MIB;
use super::activity::{Activity, tenth};
use super::processes::{Utilization, processes};

/// A GPU, and its state between readings.
pub(crate) struct Gpu {
    nvml: &'static Nvml,
    index: u32,
    // Names do not change. They are known even after the GPU is lost.
    uuid: Option<String>,
    name: Option<String>,
    activity: Option<Activity>,
    utilization: Utilization,
    /// Unavailable values that were reported, so that each is reported once.
    reported: HashSet<&'static str>,
}

impl Gpu {
    pub(super) fn new(nvml: &'static Nvml, index: u32) -> Self {
        let mut gpu = Self {
            nvml,
            index,
            uuid: None,
            name: None,
            activity: None,
            utilization: Utilization::default(),
            reported: HashSet::new(),
        };
        if let Some(device) = gpu.value("the GPU", nvml.device_by_index(index)) {
            gpu.uuid = gpu.value("uuid", device.uuid());
            gpu.name = gpu.value("name", device.name());
            gpu.activity = Activity::open(nvml, &device);
        }
        gpu
    }

    /// Reads a sample. The time and the host's columns are copied from `moment`.
    pub(crate) fn read(&mut self, moment: &GpuSample) -> GpuSample {
        let mut sample = GpuSample {
            index: Some(self.index),
            uuid: self.uuid.clone(),
            name: self.name.clone(),
            ..moment.clone()
        };
        // A GPU that comes back after a reset has another handle.
        let device = self.nvml.device_by_index(self.index);
        let Some(device) = self.value("the GPU", device) else {
            return sample;
        };
        self.read_load(&device, &mut sample);
        self.read_power_and_clocks(&device, &mut sample);
        // Errors since the driver was loaded: the lifetime counters say nothing about this run.
        let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
        sample.ecc_corrected = self.value("ecc_corrected", errors(MemoryError::Corrected));
        sample.ecc_uncorrected = self.value("ecc_uncorrected", errors(MemoryError::Uncorrected));
        if let Some(activity) = &mut self.activity {
            let read = activity.read(&device, &mut sample);
            self.value("sm_active", read);
        } else {
            self.read_pcie(&device, &mut sample);
        }
        let busy = self.utilization.read(&device);
        let busy = self.value("utilization by process", busy);
        sample.processes = self
            .value("processes", device.running_compute_processes())
            .map(|infos| processes(&infos, &busy.unwrap_or_default()));
        sample
    }

    fn read_load(&mut self, device: &Device, sample: &mut GpuSample) {
        if let Some(utilization) = self.value("gpu_util", device.utilization_rates()) {
            // Some drivers report slightly more than 100 %, which readers of the log refuse.
            sample.gpu_util = Some(utilization.gpu.min(100));
            sample.mem_util = Some(utilization.memory.min(100));
        }
        if let Some(memory) = self.value("mem_used_mib", device.memory_info()) {
            sample.mem_used_mib = Some(memory.used / MIB);
            sample.mem_total_mib = Some(memory.total / MIB);
        }
    }

    fn read_power_and_clocks(&mut self, device: &Device, sample: &mut GpuSample) {
        let temperature = device.temperature(TemperatureSensor::Gpu);
        sample.temperature_c = self.value("temperature_c", temperature);
        // NVML gives milliwatts and millijoules.
        let watts = |milliwatts| f64::from(milliwatts) / 1000.0;
        sample.power_w = self.value("power_w", device.power_usage()).map(watts);
        sample.power_limit_w = self
            .value("power_limit_w", device.enforced_power_limit())
            .map(watts);
        sample.energy_j = self
            .value("energy_j", device.total_energy_consumption())
            .map(|millijoules| millijoules as f64 / 1000.0);
        sample.sm_clock_mhz = self.value("sm_clock_mhz", device.clock_info(Clock::SM));
        sample.mem_clock_mhz = self.value("mem_clock_mhz", device.clock_info(Clock::Memory));
        sample.throttle = self
            .value("throttle", device.current_throttle_reasons())
            .map(throttle);
    }

    /// Reads `PCIe` traffic of a GPU without performance monitors. The driver counts for 20 ms in each direction, and
    /// this thread waits for it.
    fn read_pcie(&mut self, device: &Device, sample: &mut GpuSample) {
        let mib = |kib: u32| tenth(f64::from(kib) / 1024.0);
        let read = device.pcie_throughput(PcieUtilCounter::Receive);
        sample.pcie_rx_mib_s = self.value("pcie_rx_mib_s", read).map(mib);
        let written = device.pcie_throughput(PcieUtilCounter::Send);
        sample.pcie_tx_mib_s = self.value("pcie_tx_mib_s", written).map(mib);
    }

    /// Returns the value, if available. Logs the first failure for each `what`.
    fn value<T>(&mut self, what: &'static str, value: Result<T, NvmlError>) -> Option<T> {
        let index = self.index;
        match value {
            Ok(value) => return Some(value),
            Err(_) if !self.reported.insert(what) => {}
            Err(error @ NvmlError::GpuLost) => tracing::warn!("gpu {index} is lost: {error}"),
            Err(error) => tracing::info!("gpu {index}: {what} is not available: {error}"),
        }
        None
    }
}

/// An idle GPU clocks down as well, which is no throttling.
fn throttle(reasons: ThrottleReasons) -> Throttle {
    let names = reasons.difference(ThrottleReasons::GPU_IDLE).iter_names();
    Throttle(names.map(|(name, _)| name.to_lowercase()).collect())
}
