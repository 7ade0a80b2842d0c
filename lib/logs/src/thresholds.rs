//! Thresholds of findings.
//!
//! Those of packing and utilisation are the thresholds of the asynchronous embedding pipeline that plmkit re-implements
//! (`VirNucPro`, `virnucpro/utils/gpu_monitor.py`: `check_bottleneck`), so that reports can be compared. Its queue is full or
//! starved by the milliseconds of one wait (`infer_queue_state`: below 1, above 50). Here the shares of the time decide: what a
//! wait costs depends on how long a batch takes.

use std::ops::RangeInclusive;

/// Mean packing below this is critical.
pub const PACKING_CRITICAL_BELOW: f64 = 0.80;

/// Mean packing below this is mild.
pub const PACKING_MILD_BELOW: f64 = 0.85;

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

/// The temperature of a GPU at work is normally in this range.
pub const GPU_NORMAL_C: RangeInclusive<u32> = 40..=80;

/// A hotter GPU is close to throttling, if its limit is unknown.
pub const GPU_HOT_ABOVE_C: u32 = *GPU_NORMAL_C.end();

/// Device memory in use above this share is critical: a longer batch may not fit.
pub const MEMORY_CRITICAL_ABOVE: f64 = 0.95;

/// Device memory in use above this share is mild.
pub const MEMORY_MILD_ABOVE: f64 = 0.90;

/// Throttling in more than this share of the samples costs throughput.
pub const THROTTLED_OFTEN_ABOVE: f64 = 0.10;

/// A queue is full if its device waits for at most this share of the time.
pub const QUEUE_FULL_UP_TO: f64 = 0.01;

/// A queue is starved if its device waits for more than this share of the time: the waits alone use up the target of
/// [idle time](IDLE_MILD_ABOVE).
pub const QUEUE_STARVED_ABOVE: f64 = IDLE_MILD_ABOVE;

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

/// The power that a GPU can draw.
pub const POSSIBLE_W: RangeInclusive<f64> = 0.0..=3000.0;
