//! One GPU.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{MemoryInfo, ProcessInfo};
use nvml_wrapper::{Device, Nvml};
use plmkit_logs::{GpuSample, Processes, Throttle};

use super::activity::Activity;
use super::health::State;
use super::processes::{Utilization, has_long_records, processes, read};
use super::{MIB, with_names};

/// Values that were reported as not available, by the index of the GPU: each is reported once, over restarts of the driver.
pub(super) type Reported = Arc<Mutex<HashSet<(u32, &'static str)>>>;

/// How a GPU answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// With at least one value.
    Well,
    /// With errors only.
    Lost,
    /// With an error that is of the driver, and not of this GPU.
    DriverGone,
    /// Not in time.
    Silent,
}

/// A reading of a GPU: a row for the GPU, and one for each of its MIG instances.
pub(super) type Reading = (Vec<GpuSample>, Health);

/// A GPU, and its state between readings.
pub(super) struct Gpu<'n> {
    nvml: &'n Nvml,
    index: u32,
    /// Index, UUID and product name alone. They do not change, and are known even after the GPU is lost.
    pub(super) names: GpuSample,
    activity: Option<Activity<'n>>,
    state: Option<State<'n>>,
    has_mig: bool,
    has_long_records: bool,
    utilization: Utilization,
    driver_gone: bool,
    reported: Reported,
}

impl<'n> Gpu<'n> {
    pub(super) fn open(nvml: &'n Nvml, index: u32, reported: Reported) -> Self {
        let mut gpu = Self {
            nvml,
            index,
            names: GpuSample {
                index: Some(index),
                ..GpuSample::default()
            },
            activity: None,
            state: None,
            has_mig: false,
            has_long_records: has_long_records(nvml),
            utilization: Utilization::default(),
            driver_gone: false,
            reported,
        };
        if let Some(device) = gpu.value("the GPU", nvml.device_by_index(index)) {
            gpu.names.uuid = gpu.value("uuid", device.uuid());
            gpu.names.name = gpu.value("name", device.name());
            gpu.activity = Activity::open(nvml, &device);
            gpu.state = Some(State::open(nvml, &device));
            gpu.has_mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
        }
        gpu
    }

    /// Reads a sample. The time and the host's columns are copied from `moment`.
    pub(super) fn read(&mut self, moment: &GpuSample) -> Reading {
        self.driver_gone = false;
        let mut rows = vec![with_names(moment, &self.names)];
        if let Some(state) = &mut self.state {
            state.read_events(&mut rows[0]);
        }
        // A GPU that comes back after a reset has another handle.
        let device = self.nvml.device_by_index(self.index);
        if let Some(device) = self.value("the GPU", device) {
            self.read_device(&device, &mut rows[0]);
            if self.has_mig {
                self.read_mig(&device, moment, &mut rows);
            }
        }
        let health = match rows[0].has_values() {
            _ if self.driver_gone => Health::DriverGone,
            true => Health::Well,
            false => Health::Lost,
        };
        (rows, health)
    }

    fn read_device(&mut self, device: &Device<'n>, sample: &mut GpuSample) {
        self.read_load(device, sample);
        self.read_power_and_clocks(device, sample);
        // Errors since the driver was loaded: the lifetime counters say nothing about this run.
        let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
        sample.ecc_corrected = self.value("ecc_corrected", errors(MemoryError::Corrected));
        sample.ecc_uncorrected = self.value("ecc_uncorrected", errors(MemoryError::Uncorrected));
        if let Some(activity) = &mut self.activity {
            let read = activity.read(device, sample);
            self.value("sm_active", read);
        }
        if let Some(state) = &mut self.state {
            state.read(device, sample);
        }
        let busy = self.utilization.read(device);
        let busy = self.value("utilization by process", busy);
        let infos = self.value("processes", read(device, self.has_long_records));
        sample.processes = infos.map(|infos| {
            let total_mib = sample.mem_total_mib;
            self.processes(&infos, &busy.unwrap_or_default(), total_mib)
        });
    }

    /// Adds a row for each MIG instance, with its memory and its processes: NVML gives no utilisation of an instance. The
    /// names are read each time, as instances come and go.
    fn read_mig(&mut self, device: &Device<'n>, moment: &GpuSample, rows: &mut Vec<GpuSample>) {
        let count = self.value("MIG instances", device.mig_device_count());
        let places = 0..count.unwrap_or_default();
        // Not every place has an instance.
        for instance in places.filter_map(|place| device.mig_device_by_index(place).ok()) {
            let mut row = GpuSample {
                index: Some(self.index),
                uuid: self.value("uuid of a MIG instance", instance.uuid()),
                name: self.value("name of a MIG instance", instance.name()),
                ..moment.clone()
            };
            self.read_memory(instance.memory_info(), &mut row);
            let infos = read(&instance, self.has_long_records);
            let infos = self.value("processes of a MIG instance", infos);
            let total_mib = row.mem_total_mib;
            row.processes = infos.map(|infos| self.processes(&infos, &HashMap::new(), total_mib));
            rows.push(row);
        }
    }

    /// Returns the processes of a GPU or an instance. Logs once what is impossible about them.
    fn processes(
        &self,
        infos: &[ProcessInfo],
        busy: &HashMap<u32, u32>,
        total_mib: Option<u64>,
    ) -> Processes {
        let (processes, wrong) = processes(infos, busy, total_mib);
        if let Some(wrong) = wrong.filter(|wrong| self.is_new(wrong)) {
            tracing::info!("gpu {}: {wrong}", self.index);
        }
        processes
    }

    fn read_load(&mut self, device: &Device, sample: &mut GpuSample) {
        if let Some(utilization) = self.value("gpu_util", device.utilization_rates()) {
            // Some drivers report slightly more than 100 %, which readers of the log refuse.
            sample.gpu_util = Some(utilization.gpu.min(100));
            sample.mem_util = Some(utilization.memory.min(100));
        }
        self.read_memory(device.memory_info(), sample);
    }

    fn read_memory(&mut self, memory: Result<MemoryInfo, NvmlError>, sample: &mut GpuSample) {
        if let Some(memory) = self.value("mem_used_mib", memory) {
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

    /// Returns the value, if available. Logs the first failure for each `what`.
    fn value<T>(&mut self, what: &'static str, value: Result<T, NvmlError>) -> Option<T> {
        let (index, error) = match value {
            Ok(value) => return Some(value),
            Err(error) => (self.index, error),
        };
        self.driver_gone |= is_of_the_driver(&error);
        match error {
            _ if !self.is_new(what) => {}
            NvmlError::GpuLost => tracing::warn!("gpu {index} is lost: {error}"),
            _ => tracing::info!("gpu {index}: {what} is not available: {error}"),
        }
        None
    }

    /// Whether something was not reported yet.
    fn is_new(&self, what: &'static str) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert((self.index, what))
    }
}

/// Whether an error is that of a driver that was unloaded, restarted or replaced.
fn is_of_the_driver(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch
    )
}

/// An idle GPU clocks down as well, which is no throttling.
fn throttle(reasons: ThrottleReasons) -> Throttle {
    let names = reasons.difference(ThrottleReasons::GPU_IDLE).iter_names();
    Throttle(names.map(|(name, _)| name.to_lowercase()).collect())
}
