//! What tells of the state of a GPU: its temperature limits, the repair of its memory, errors of its links, and Xid events.

use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::TemperatureThreshold;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};

use plmkit_logs::GpuSample;

/// Counters of errors are read this often: they change rarely, and the driver asks each link.
const COUNTER_INTERVAL: Duration = Duration::from_secs(10);

/// More Xid events between two samples are left for the next one.
const MAX_EVENTS: usize = 100;

/// A field of NVML, and the column that it belongs to.
type Counter = (u32, fn(&mut GpuSample) -> &mut Option<u64>);

/// Fields that make up a column. The value of a column is the sum of the fields that the GPU has.
#[rustfmt::skip]
const COUNTERS: &[Counter] = &[
    // Before Ampere, memory is repaired by the page, later by the row.
    (field_id::NVML_FI_DEV_RETIRED_SBE, |sample| &mut sample.retired_pages),
    (field_id::NVML_FI_DEV_RETIRED_DBE, |sample| &mut sample.retired_pages),
    (field_id::NVML_FI_DEV_RETIRED_PENDING, |sample| &mut sample.repair_pending),
    (field_id::NVML_FI_DEV_REMAPPED_COR, |sample| &mut sample.remapped_rows),
    (field_id::NVML_FI_DEV_REMAPPED_UNC, |sample| &mut sample.remapped_rows),
    (field_id::NVML_FI_DEV_REMAPPED_PENDING, |sample| &mut sample.repair_pending),
    (field_id::NVML_FI_DEV_REMAPPED_FAILURE, |sample| &mut sample.repair_failed),
    (field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER, |sample| &mut sample.pcie_replays),
    (field_id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, |sample| &mut sample.nvlink_errors),
    (field_id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, |sample| &mut sample.nvlink_errors),
    (field_id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, |sample| &mut sample.nvlink_errors),
    (field_id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, |sample| &mut sample.nvlink_errors),
];

/// The state of a GPU between readings.
pub(super) struct State<'n> {
    temperature_limit_c: Option<u32>,
    mem_temperature_limit_c: Option<u32>,
    has_mem_temperature: bool,
    counters: Vec<Option<u64>>,
    counted: Option<Instant>,
    events: Option<EventSet<'n>>,
    xid_errors: u64,
    last_xid: Option<u64>,
}

impl<'n> State<'n> {
    /// Reads what does not change, and listens for Xid events from now on.
    pub(super) fn open(nvml: &'n Nvml, device: &Device<'n>) -> Self {
        let limit = |kind| device.temperature_threshold(kind).ok();
        let limits = [TemperatureThreshold::GpuMax, TemperatureThreshold::Slowdown].map(limit);
        let events = nvml.create_event_set().ok();
        let listen = |events| device.register_events(EventTypes::CRITICAL_XID_ERROR, events);
        Self {
            temperature_limit_c: limits.into_iter().flatten().min(),
            mem_temperature_limit_c: limit(TemperatureThreshold::MemoryMax),
            has_mem_temperature: true,
            counters: Vec::new(),
            counted: None,
            events: events.and_then(|events| listen(events).ok()),
            xid_errors: 0,
            last_xid: None,
        }
    }

    /// Fills in the columns of `device`.
    pub(super) fn read(&mut self, device: &Device, sample: &mut GpuSample) {
        sample.temperature_limit_c = self.temperature_limit_c;
        sample.mem_temperature_limit_c = self.mem_temperature_limit_c;
        if self.has_mem_temperature {
            let celsius = fields(device, &[field_id::NVML_FI_DEV_MEMORY_TEMP])[0];
            self.has_mem_temperature = celsius.is_some();
            // A board without a sensor may say 0.
            let celsius = celsius.and_then(|celsius| u32::try_from(celsius).ok());
            sample.mem_temperature_c = celsius.filter(|celsius| *celsius > 0);
        }
        let is_old = |counted: &Instant| counted.elapsed() >= COUNTER_INTERVAL;
        if self.counted.as_ref().is_none_or(is_old) {
            self.counters = fields(
                device,
                &COUNTERS.iter().map(|field| field.0).collect::<Vec<_>>(),
            );
            self.counted = Some(Instant::now());
        }
        for ((_, column), value) in COUNTERS.iter().zip(&self.counters) {
            if let Some(value) = value {
                *column(sample).get_or_insert(0) += value;
            }
        }
    }

    /// Counts the Xid events since the last reading. A GPU that fell off the bus still has its last event.
    pub(super) fn read_events(&mut self, sample: &mut GpuSample) {
        let Some(events) = &self.events else { return };
        // Without a pending event the driver returns at once, with a timeout.
        for event in (0..MAX_EVENTS).map_while(|_| events.wait(0).ok()) {
            self.xid_errors += 1;
            self.last_xid = match event.event_data {
                Some(XidError::Value(xid)) => Some(xid),
                Some(XidError::Unknown) | None => None,
            };
        }
        sample.xid_errors = Some(self.xid_errors);
        sample.last_xid = self.last_xid;
    }
}

/// Reads fields with one call. A field that the GPU does not have is `None`.
fn fields(device: &Device, ids: &[u32]) -> Vec<Option<u64>> {
    let ids: Vec<FieldId> = ids.iter().copied().map(FieldId).collect();
    let Ok(values) = device.field_values_for(&ids) else {
        return vec![None; ids.len()];
    };
    let number = |value: Result<SampleValue, NvmlError>| match value.ok()? {
        SampleValue::U32(value) => Some(u64::from(value)),
        SampleValue::U64(value) => Some(value),
        SampleValue::I64(value) => u64::try_from(value).ok(),
        SampleValue::F64(_) => None,
    };
    let values = values.into_iter();
    values.map(|field| number(field.ok()?.value)).collect()
}
