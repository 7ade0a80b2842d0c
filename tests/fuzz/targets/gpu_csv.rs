//! GPU samples, from the log to the report.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plmkit_fuzz::judged;
use plmkit_logs::gpu_csv::GpuCsvReader;
use plmkit_telemetry::report::{Report, Runs, Samples, sentences};

fuzz_target!(|bytes: &[u8]| {
    let reader = GpuCsvReader::new(bytes, "gpu.csv");
    let mut samples = Samples::during(&Runs::default());
    for sample in reader {
        let Some(sample) = judged(sample) else {
            return;
        };
        samples.add(&sample);
    }
    sentences(&Report::new(None, Some(samples)));
});
