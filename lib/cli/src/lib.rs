//! Shared parts of the command lines: exit codes, logging, signals, progress, man pages and completions.
//!
//! Standard output is for data only. Messages go to standard error.

mod choice;
mod common;
mod generate;
mod interval;
mod log;
mod memory;
mod outputs;
mod paths;
mod program;
mod progress;
mod signals;
mod threads;

pub use choice::variant;
pub use common::{Common, LogFormat};
pub use generate::Generate;
pub use interval::interval;
pub use log::spelled;
pub use memory::keep_freed_memory;
pub use outputs::OutputArgs;
pub use paths::{
    NamedPath, ensure_distinct, ensure_no_stream, ensure_reports, ensure_same_kind, file, files_of,
    lists_of,
};
pub use program::{PARENT_VARIABLE, Program, main, on_abort, parse, print};
pub use progress::{DeviceLine, ProgressDisplay, ProgressMode};
pub use signals::{die_of, end_at_once};
pub use threads::{available_threads, default_threads};

pub use plmkit_kit::{Exit, Fault, Stop};
