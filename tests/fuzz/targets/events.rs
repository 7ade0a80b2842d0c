//! Run events, from the log to the report.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_fuzz::judged;
use plmkit_logs::event::EventReader;
use plmkit_telemetry::report::{Report, Runs, sentences};

fuzz_target!(|bytes: &[u8]| {
    let mut reader = EventReader::new(bytes, "events.jsonl");
    let mut runs = Runs::default();
    for event in reader.by_ref() {
        let Some(event) = judged(event) else {
            return;
        };
        runs.add(&event);
    }
    if judged(reader.finish()).is_none() {
        return;
    }
    sentences(&Report::new(Some(runs), None));
});
