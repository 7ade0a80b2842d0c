//! The two logs of a run: run events, which `gpu-embed` writes, and GPU samples, which `monitor-log record` writes.
//!
//! Both are logs of whole lines: files that grow while they are read. A log is no atomic file: people follow it, and a killed
//! writer leaves what it wrote. A line is there once its newline is. A reader leaves out a last line without one; a writer
//! that appends cuts it off first.
//!
//! Both carry the same clock beside the time of day: the [boot id](boot_id) and the [seconds since boot](boot_seconds).

mod append;
mod clock;
mod error;
pub mod event;
pub mod gpu_csv;
pub mod gpu_parquet;
mod gpu_sample;
mod lines;
mod mean;
mod progress_reporter;
pub mod thresholds;

pub use clock::{Timestamp, boot_id, boot_seconds};
pub use error::LogError;
pub use gpu_sample::{GpuProcess, GpuSample, Processes, Throttle};
pub use lines::CompleteLines;
pub use mean::Mean;
pub use progress_reporter::{ProgressMessage, ProgressReporter};
