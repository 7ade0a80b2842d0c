//! Run events, GPU and host sampling, thresholds and reports.

pub mod command;
mod error;
pub mod event;
pub mod export;
mod family;
pub mod gpu_csv;
pub mod gpu_parquet;
mod host;
pub mod live;
mod log;
mod nvml;
mod pressure;
mod pulse;
mod recorder;
pub mod report;
mod sample;
mod sampler;
mod time;

pub use error::TelemetryError;
pub use pulse::{Pulse, Said};
pub use recorder::{PATIENCE, Recorded, Recorder, Recording};
pub use sample::{GpuProcess, GpuSample, Processes, Throttle};
pub use sampler::{LOOK_AGAIN, Sampler, Sources};
pub use time::Timestamp;
