//! Metrics of GPUs, host and runs for Prometheus.
//!
//! Names and units follow the Prometheus conventions: base units (seconds, bytes, hertz, celsius, watts, joules,
//! ratios from 0 to 1), `_total` for counters, `_info` for a metric whose content is its labels. An unknown value has
//! no line.

mod gpu;
mod run;
mod text;

use plmkit_logs::{GpuSample, Timestamp};

use crate::live::RunStatus;
use text::{Labels, Metric, MetricsText};

/// The media type of [`prometheus_text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics of a moment in Prometheus' text format 0.0.4. `rows` has one sample for each GPU, or one for the
/// host.
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
    text.0
}

#[rustfmt::skip]
const EXPORTER_METRICS: &[Metric<[GpuSample]>] = &[
    ("gauge", "plmkit_exporter_last_sample_timestamp_seconds", "When GPUs and host were looked at last, in seconds since 1970.", |rows| Some(seconds(rows.first().map_or_else(Timestamp::now, |row| row.timestamp)))),
    ("gauge", "plmkit_exporter_driver_up", "Whether a GPU answers, 1 or 0; a driver that is not there is looked for every minute.", |rows| Some(flag(rows.iter().any(GpuSample::has_values)))),
];

fn write_exporter(text: &mut MetricsText, rows: &[GpuSample]) {
    let none = Labels::default();
    let info = none.with("version", Some(env!("CARGO_PKG_VERSION")));
    let name = "plmkit_exporter_info";
    let help = "The program that exports.";
    text.metric("gauge", name, help, [(info, Some(1.0))]);
    text.table(EXPORTER_METRICS, &[(rows, none)]);
}

/// Returns 1 or 0.
fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Returns the seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.unix_ms() as f64 / 1000.0
}

/// Returns a count as a value.
fn number(count: Option<u64>) -> Option<f64> {
    Some(count? as f64)
}
