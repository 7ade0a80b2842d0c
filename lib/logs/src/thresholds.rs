//! Thresholds of findings.
//!
//! The thresholds of waits, packing and utilisation are those of the asynchronous embedding pipeline that plmkit
//! re-implements (`VirNucPro`, `virnucpro/utils/gpu_monitor.py`: `infer_queue_state`, `check_bottleneck`), so that reports
//! can be compared.

/// Mean packing below this is critical.
pub const PACKING_CRITICAL_BELOW: f64 = 0.80;

/// Mean packing below this is mild.
pub const PACKING_MILD_BELOW: f64 = 0.85;

/// What is wrong with a mean packing, and the share that it is below: [`PACKING_CRITICAL_BELOW`] or [`PACKING_MILD_BELOW`].
pub fn packing_shortfall(mean: f64) -> Option<(&'static str, f64)> {
    match mean {
        _ if mean < PACKING_CRITICAL_BELOW => Some(("far from full", PACKING_CRITICAL_BELOW)),
        _ if mean < PACKING_MILD_BELOW => Some(("not full", PACKING_MILD_BELOW)),
        _ => None,
    }
}

/// Mean GPU utilisation below this is critical.
pub const GPU_CRITICAL_BELOW: f64 = 0.50;

/// Mean GPU utilisation below this is mild.
pub const GPU_MILD_BELOW: f64 = 0.80;

/// A mean utilisation needs at least this many samples.
pub const GPU_MIN_SAMPLES: u64 = 10;

/// Figures of a run from samples need at least this many. One that is longer than the run tells of the time around it.
pub const RUN_MIN_READINGS: u64 = 3;

/// A GPU closer than this to the limit of its board is close to throttling. Boards hold the temperature at the limit, so it
/// is rarely above.
pub const GPU_HOT_MARGIN_C: u32 = 5;

/// A hotter GPU is close to throttling, if its limit is unknown.
pub const GPU_HOT_ABOVE_C: u32 = 80;

/// Device memory in use above this share is critical: a longer batch may not fit.
pub const MEMORY_CRITICAL_ABOVE: f64 = 0.95;

/// Device memory in use above this share is mild.
pub const MEMORY_MILD_ABOVE: f64 = 0.90;

/// Throttling in more than this share of the samples costs throughput.
pub const THROTTLED_OFTEN_ABOVE: f64 = 0.10;

/// A queue is full if its device waits for at most this share of the time. It is starved above [`IDLE_MILD_ABOVE`].
pub const QUEUE_FULL_UP_TO: f64 = 0.01;

/// A device without work for more than this share of a run's time is mild. The target of the pipeline is 5 %.
pub const IDLE_MILD_ABOVE: f64 = 0.05;

/// A device without work for more than this share of a run's time is critical.
pub const IDLE_CRITICAL_ABOVE: f64 = 0.20;

/// The idle time of a shorter run is not judged: it is mostly the start.
pub const IDLE_JUDGED_FROM_S: f64 = 10.0;

/// A figure from samples that were seen for less than this share of the time is marked.
pub const COVERAGE_MARKED_BELOW: f64 = 0.90;

/// A figure from samples that were seen for less than this share of the time is left out.
pub const COVERAGE_ABSENT_BELOW: f64 = 0.50;

/// A GPU without values in this many last samples of a recording, and for [`GPU_LOST_AFTER_S`], is lost.
pub const GPU_LOST_MOMENTS: u64 = 3;

/// A shorter time without values is a hiccup of the driver.
pub const GPU_LOST_AFTER_S: f64 = 5.0;

/// No GPU draws more.
pub const POWER_POSSIBLE_UP_TO_W: f64 = 3000.0;
