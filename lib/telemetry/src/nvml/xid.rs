//! Xid events.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::{Device, Nvml};
use plmkit_logs::GpuSample;

/// More Xid events between two samples are left for the next one.
const MAX_EVENTS: usize = 100;

/// The Xid events of a GPU since the driver was opened.
pub(super) struct XidEvents<'n> {
    events: EventSet<'n>,
    errors: u64,
    last: Option<u64>,
}

impl<'n> XidEvents<'n> {
    /// Listens from now on; `None` if the driver gives no events.
    pub(super) fn open(nvml: &'n Nvml, device: &Device<'n>) -> Option<Self> {
        let events = nvml.create_event_set().ok()?;
        let events = device.register_events(EventTypes::CRITICAL_XID_ERROR, events);
        Some(Self {
            events: events.ok()?,
            errors: 0,
            last: None,
        })
    }

    /// Counts the events since the last reading. A GPU that fell off the bus still has its last event.
    pub(super) fn read(&mut self, sample: &mut GpuSample) {
        // Without a pending event the driver returns at once, with a timeout.
        for event in (0..MAX_EVENTS).map_while(|_| self.events.wait(0).ok()) {
            self.errors += 1;
            self.last = match event.event_data {
                Some(XidError::Value(xid)) => Some(xid),
                Some(XidError::Unknown) | None => None,
            };
        }
        sample.xid_errors = Some(self.errors);
        sample.last_xid = self.last;
    }
}
