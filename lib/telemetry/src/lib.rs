//! Run events, GPU and host sampling, thresholds and reports.

pub mod command;
mod error;
pub mod event;
pub mod export;
pub mod gpu_csv;
mod host;
pub mod live;
mod log;
mod nvml;
mod recorder;
pub mod report;
mod sample;
mod sampler;
mod time;

pub use error::TelemetryError;
pub use recorder::Recorder;
pub use sample::{GpuProcess, GpuSample, Processes, Throttle};
pub use sampler::Sampler;
pub use time::Timestamp;
