//! Run events, from the log to the report.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_fuzz::judged;
use plmkit_logs::event::EventReader;
use plmkit_telemetry::report::{Report, Runs, sentences};

fuzz_target!(|bytes: &[u8]| {
    let reader = EventReader::new(bytes, "events.jsonl");
    let mut runs = Runs::default();
    for event in reader {
        let Some(event) = judged(event) else {
            return;
        };
        runs.add(&event);
    }
    sentences(&Report::new(Some(runs), None));
});
