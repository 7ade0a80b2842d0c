//! Shared parts of the command lines: exit codes, logging, signals, progress, man pages and completions.
//!
//! Standard output is for data only. Messages go to standard error.

mod choice;
mod column_args;
mod common;
mod generate;
mod given;
mod interval;
mod log;
mod memory;
mod paths;
mod program;
mod progress;
mod signals;
mod stdout;
mod threads;

pub use choice::variant;
pub use column_args::ColumnArgs;
pub use common::{Common, LogFormat};
pub use generate::Generate;
pub use given::Given;
pub use interval::interval;
pub use memory::keep_freed_memory;
pub use paths::{
    NamedPath, ensure_distinct, ensure_no_stream, ensure_reports, ensure_same_kind, file, files_of,
    lists_of, resolved,
};
pub use program::{PARENT_VARIABLE, Program, main, on_abort, parse};
pub use progress::{DeviceLine, ProgressDisplay, ProgressMode};
pub use signals::{die_of, end_at_once};
pub use stdout::print;
pub use threads::{available_threads, default_threads};

pub use plmkit_kit::{Exit, Fault, Stop};
