//! One GPU.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};
use plmkit_logs::thresholds::POSSIBLE_W;
use plmkit_logs::{GpuSample, Throttle};

use super::processes::{Utilization, processes, read};
use super::xid::XidEvents;
use super::{MIB, with_names};

/// Values that were reported as not available, by the index of the GPU: each is reported once, over restarts of the driver.
pub(super) type Reported = RefCell<HashSet<(u32, &'static str)>>;

/// Reads values of a device into a row.
type Reader = fn(&Device, &mut GpuSample) -> Result<(), NvmlError>;

/// The readers, each with the column that it is reported by. NVML gives milliwatts and millijoules. Some drivers report slightly
/// more than 100 %, which readers of the log refuse, and power beyond all GPUs, which is unknown. Lifetime counters of memory errors say nothing about a run.
#[rustfmt::skip]
const READERS: [(&str, Reader); 12] = [
    ("gpu_util", |device, row| device.utilization_rates().map(|rates| {
        (row.gpu_util, row.mem_util) = (Some(rates.gpu.min(100)), Some(rates.memory.min(100)));
    })),
    MEMORY,
    ("temperature_c", |device, row| set(&mut row.temperature_c, device.temperature(TemperatureSensor::Gpu))),
    ("memory temperature and limits", |device, row| {
        read_temperatures(device, row);
        Ok(())
    }),
    ("power_w", |device, row| device.power_usage().map(|mw| row.power_w = Some(thousandth(mw)).filter(|w| POSSIBLE_W.contains(w)))),
    ("power_limit_w", |device, row| set(&mut row.power_limit_w, device.enforced_power_limit().map(thousandth))),
    ("energy_j", |device, row| set(&mut row.energy_j, device.total_energy_consumption().map(|joules| joules as f64 / 1000.0))),
    ("sm_clock_mhz", |device, row| set(&mut row.sm_clock_mhz, device.clock_info(Clock::SM))),
    ("mem_clock_mhz", |device, row| set(&mut row.mem_clock_mhz, device.clock_info(Clock::Memory))),
    ("throttle", |device, row| set(&mut row.throttle, device.current_throttle_reasons().map(throttle))),
    ("ecc_corrected", |device, row| set(&mut row.ecc_corrected, device.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile))),
    ("ecc_uncorrected", |device, row| set(&mut row.ecc_uncorrected, device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))),
];

/// The reader of the memory, which MIG instances have as well.
const MEMORY: (&str, Reader) = ("mem_used_mib", |device, row| {
    let memory = device.memory_info()?;
    row.mem_used_mib = Some(memory.used / MIB);
    row.mem_total_mib = Some(memory.total / MIB);
    Ok(())
});

fn set<T>(column: &mut Option<T>, value: Result<T, NvmlError>) -> Result<(), NvmlError> {
    *column = Some(value?);
    Ok(())
}

/// Reads what many boards lack: no message tells of it.
fn read_temperatures(device: &Device, row: &mut GpuSample) {
    let limit = |kind| device.temperature_threshold(kind).ok();
    let limits = [TemperatureThreshold::GpuMax, TemperatureThreshold::Slowdown].map(limit);
    row.temperature_limit_c = limits.into_iter().flatten().min();
    row.mem_temperature_limit_c = limit(TemperatureThreshold::MemoryMax);
    let fields = device.field_values_for(&[FieldId(field_id::NVML_FI_DEV_MEMORY_TEMP)]);
    let field = fields.into_iter().flatten().next().and_then(Result::ok);
    // A board without a sensor may say 0.
    row.mem_temperature_c = match field.map(|field| field.value) {
        Some(Ok(SampleValue::U32(celsius @ 1..))) => Some(celsius),
        _ => None,
    };
}

fn thousandth(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

/// An idle GPU clocks down as well, which is no throttling.
fn throttle(reasons: ThrottleReasons) -> Throttle {
    let names = reasons.difference(ThrottleReasons::GPU_IDLE).iter_names();
    Throttle(names.map(|(name, _)| name.to_lowercase()).collect())
}

/// A GPU, and its state between readings.
pub(super) struct Gpu<'n> {
    nvml: &'n Nvml,
    index: u32,
    /// Index, UUID and product name alone. They do not change, and are known even after the GPU is lost.
    pub(super) names: GpuSample,
    xid_events: Option<XidEvents<'n>>,
    has_mig: bool,
    utilization: Utilization,
    reported: &'n Reported,
}

impl<'n> Gpu<'n> {
    pub(super) fn open(nvml: &'n Nvml, index: u32, reported: &'n Reported) -> Self {
        let mut gpu = Self {
            nvml,
            index,
            names: GpuSample {
                index: Some(index),
                ..GpuSample::default()
            },
            xid_events: None,
            has_mig: false,
            utilization: Utilization::default(),
            reported,
        };
        if let Some(device) = gpu.value("the GPU", nvml.device_by_index(index)) {
            gpu.names.uuid = gpu.value("uuid", device.uuid());
            gpu.names.name = gpu.value("name", device.name());
            gpu.xid_events = XidEvents::open(nvml, &device);
            gpu.has_mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
        }
        gpu
    }

    /// Reads a row of the GPU, and one of each of its MIG instances. The time is copied from `moment`.
    pub(super) fn read(&mut self, moment: &GpuSample) -> Vec<GpuSample> {
        let mut rows = vec![with_names(moment, &self.names)];
        if let Some(events) = &mut self.xid_events {
            events.read(&mut rows[0]);
        }
        // A GPU that comes back after a reset has another handle.
        let device = self.nvml.device_by_index(self.index);
        if let Some(device) = self.value("the GPU", device) {
            self.read_device(&device, &mut rows[0]);
            if self.has_mig {
                self.read_mig(&device, moment, &mut rows);
            }
        }
        rows
    }

    fn read_device(&mut self, device: &Device<'n>, row: &mut GpuSample) {
        for (column, read) in READERS {
            self.value(column, read(device, row));
        }
        let busy = self.utilization.read(device);
        let busy = self.value("utilization by process", busy);
        self.read_processes(device, &busy.unwrap_or_default(), row);
    }

    /// Adds a row for each MIG instance, with its memory: NVML gives no utilisation of an instance. The names are read each time, as
    /// instances come and go.
    fn read_mig(&self, device: &Device<'n>, moment: &GpuSample, rows: &mut Vec<GpuSample>) {
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
            let (column, read) = MEMORY;
            self.value(column, read(&instance, &mut row));
            rows.push(row);
        }
    }

    /// Reads the processes of a GPU. Logs once what is impossible about them.
    fn read_processes(&self, device: &Device, busy: &HashMap<u32, u32>, row: &mut GpuSample) {
        let infos = self.value("processes", read(self.nvml, device));
        row.processes = infos.map(|infos| {
            let (processes, wrong) = processes(&infos, busy, row.mem_total_mib);
            if let Some(wrong) = wrong.filter(|wrong| self.is_new(wrong)) {
                tracing::info!("gpu {}: {wrong}", self.index);
            }
            processes
        });
    }

    /// Returns the value, if available. Logs the first failure for each `what`.
    fn value<T>(&self, what: &'static str, value: Result<T, NvmlError>) -> Option<T> {
        let index = self.index;
        let report = |error: &NvmlError| match error {
            _ if !self.is_new(what) => {}
            NvmlError::GpuLost => tracing::warn!("gpu {index} is lost: {error}"),
            _ => tracing::info!("gpu {index}: {what} is not available: {error}"),
        };
        value.inspect_err(report).ok()
    }

    /// Whether something was not reported yet.
    fn is_new(&self, what: &'static str) -> bool {
        self.reported.borrow_mut().insert((self.index, what))
    }
}
