//! The two logs of a run: run events, which `gpu-embed` writes, and GPU samples, which `monitor-log record` writes.
//!
//! Both logs consist of lines and grow while they are read. They are not written atomically: people follow them, and a
//! killed writer leaves what it wrote. A line is complete once its newline is written. Readers skip an incomplete last
//! line; a writer that appends cuts it off first.
//!
//! Besides the time of day, both logs have one clock: the [boot id](boot_id) and the [seconds since boot](boot_seconds).

mod append;
mod clock;
pub mod event;
mod folder;
pub mod gpu_csv;
mod gpu_sample;
mod progress_reporter;
mod reader;
mod stretch;
pub mod thresholds;
mod throttle;
mod tier;

pub use clock::{Timestamp, boot_id, boot_seconds, cpu_time, host_name};
pub use folder::{Note, log_name, logs_below};
pub use gpu_sample::{GpuProcess, GpuSample, METRICS, Metric, Processes, Subject, is_instance};
pub use progress_reporter::ProgressReporter;
pub use reader::{LineParser, LogReader};
pub use stretch::Stretch;
pub use throttle::Throttle;
pub use tier::{QueueState, Tier};
