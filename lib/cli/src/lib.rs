//! Shared parts of the command lines: exit codes, logging, signals, progress, man pages and completions.
//!
//! Standard output is for data only. Messages go to standard error.

mod choice;
mod common;
mod fault;
mod generate;
mod interval;
mod log;
mod memory;
mod outputs;
mod paths;
mod program;
mod progress;
mod signals;

pub use choice::variant;
pub use common::{Common, LogFormat};
pub use fault::Fault;
pub use generate::Generate;
pub use interval::interval;
pub use log::spelled;
pub use outputs::OutputArgs;
pub use paths::{
    NamedPath, file, files_of, keep_all_but_reports, keep_apart, keep_data, keep_renameable,
    lists_of,
};
pub use program::{PARENT_VARIABLE, Program, main, on_abort, parse, print};
pub use progress::{DeviceLine, ProgressDisplay, ProgressMode};
pub use signals::{die_of, end_at_once};

pub use plmkit_contract::{Exit, Stop};
