//! What Prometheus is told: metric families of GPUs, host and runs, and the two text forms of them.
//!
//! Names and units are those of the Prometheus conventions: base units (seconds, bytes, hertz, celsius, watts, joules,
//! ratios from 0 to 1), counters in `_total`, what only names something in `_info`. A value that is not known has no
//! sample, and a family without samples is left out.

mod encode;
mod exporter;
mod family;
mod gpu;
mod host;
mod run;

use crate::live::RunStatus;
use crate::{GpuSample, Timestamp};

pub use encode::{Format, encode};
pub use family::{Family, Histogram, Kind, Sample, Value};

/// All families of a moment: its rows, one for each GPU, and the runs that are known.
///
/// ```
/// use plmkit_telemetry::export::{Format, encode, families};
/// use plmkit_telemetry::{GpuSample, Timestamp};
///
/// let mut row = GpuSample::at(Timestamp::now());
/// row.index = Some(0);
/// row.gpu_util = Some(97);
/// let text = encode(&families(&[row], &[]), Format::Prometheus);
/// assert!(text.contains("plmkit_gpu_utilization_ratio{index=\"0\"} 0.97\n"));
/// ```
pub fn families(rows: &[GpuSample], runs: &[RunStatus]) -> Vec<Family> {
    let taken = rows
        .first()
        .map_or_else(Timestamp::now, |row| row.timestamp);
    let driver_up = rows.iter().any(|row| row.index.is_some());
    let mut families = exporter::families(taken, driver_up);
    families.extend(gpu::families(rows));
    families.extend(rows.first().map(host::families).into_iter().flatten());
    families.extend(run::families(runs));
    families
}
