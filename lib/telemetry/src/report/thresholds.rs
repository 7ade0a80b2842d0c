//! Where figures become findings.
//!
//! They are those of the asynchronous embedding pipeline that plmkit re-implements (`VirNucPro`,
//! `virnucpro/utils/gpu_monitor.py`: `infer_queue_state`, `check_bottleneck`), so that reports can be compared.

/// A wait below this found a batch ready: the queue was full.
pub const QUEUE_FULL_BELOW_MS: f64 = 1.0;

/// A wait above this left the device idle for longer than a small batch takes: the queue was starved.
pub const QUEUE_STARVED_ABOVE_MS: f64 = 50.0;

/// Mean packing below this is critical.
pub const PACKING_CRITICAL_BELOW: f64 = 0.80;

/// Mean packing below this is mild.
pub const PACKING_MILD_BELOW: f64 = 0.85;

/// Mean GPU utilisation below this is critical.
pub const GPU_CRITICAL_BELOW: f64 = 0.50;

/// Mean GPU utilisation below this is mild.
pub const GPU_MILD_BELOW: f64 = 0.80;

/// Fewer samples of a GPU's utilisation than this say nothing about its mean.
pub const GPU_MIN_SAMPLES: u64 = 10;
