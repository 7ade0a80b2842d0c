//! What tells of the state of a GPU: its temperatures and their limits, and Xid events.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::TemperatureThreshold;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};

use plmkit_logs::GpuSample;

/// More Xid events between two samples are left for the next one.
const MAX_EVENTS: usize = 100;

/// The state of a GPU between readings.
pub(super) struct State<'n> {
    temperature_limit_c: Option<u32>,
    mem_temperature_limit_c: Option<u32>,
    has_mem_temperature: bool,
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
            let celsius = field(device, field_id::NVML_FI_DEV_MEMORY_TEMP);
            self.has_mem_temperature = celsius.is_some();
            // A board without a sensor may say 0.
            sample.mem_temperature_c = celsius.filter(|celsius| *celsius > 0);
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

/// Reads a field. One that the GPU does not have is `None`.
fn field(device: &Device, id: u32) -> Option<u32> {
    let values = device.field_values_for(&[FieldId(id)]).ok()?;
    match values.into_iter().next()?.ok()?.value.ok()? {
        SampleValue::U32(value) => Some(value),
        _ => None,
    }
}
