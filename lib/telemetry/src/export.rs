//! What Prometheus is told of GPUs, host and runs.
//!
//! Names and units are those of the Prometheus conventions: base units (seconds, bytes, hertz, celsius, watts, joules,
//! ratios from 0 to 1), counters in `_total`, a metric whose labels are its content in `_info`. A value that is not known has
//! no line.

mod gpu;
mod run;
mod text;

use plmkit_logs::{GpuSample, Timestamp};

use crate::live::RunStatus;
use text::{Labels, MetricsText};

/// The media type of [`prometheus_text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a moment, in Prometheus' text form 0.0.4: its rows, one for each GPU, and the runs that are known.
///
/// ```
/// use plmkit_logs::{GpuSample, Timestamp};
/// use plmkit_telemetry::export::prometheus_text;
///
/// let mut row = GpuSample::at(Timestamp::now());
/// row.index = Some(0);
/// row.gpu_util = Some(97);
/// let text = prometheus_text(&[row], &[]);
/// assert!(text.contains("plmkit_gpu_utilization_ratio{index=\"0\"} 0.97\n"));
/// ```
pub fn prometheus_text(rows: &[GpuSample], runs: &[RunStatus]) -> String {
    let mut text = MetricsText::default();
    write_exporter(&mut text, rows);
    gpu::write(&mut text, rows);
    run::write(&mut text, runs);
    text.finish()
}

fn write_exporter(text: &mut MetricsText, rows: &[GpuSample]) {
    let version = Labels::default().with("version", Some(env!("CARGO_PKG_VERSION")));
    text.metric(
        "gauge",
        "plmkit_exporter_info",
        "The program that exports.",
        [(version, Some(1.0))],
    );
    let sampled = rows
        .first()
        .map_or_else(Timestamp::now, |row| row.timestamp);
    text.metric(
        "gauge",
        "plmkit_exporter_last_sample_timestamp_seconds",
        "When GPUs and host were looked at last, in seconds since 1970.",
        [(Labels::default(), Some(seconds(sampled)))],
    );
    let driver_up = rows.iter().any(|row| row.index.is_some());
    text.metric(
        "gauge",
        "plmkit_exporter_driver_up",
        "Whether a driver tells of GPUs, 1 or 0; one that is not there is looked for every minute.",
        [(Labels::default(), Some(f64::from(u8::from(driver_up))))],
    );
}

/// Seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.unix_ms() as f64 / 1000.0
}
