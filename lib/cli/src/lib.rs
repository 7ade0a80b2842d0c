//! What all command lines share: exit codes, logging, signals, progress, man pages and completions.
//!
//! Standard output carries data only; people read standard error.

mod common;
mod fault;
mod file_size;
mod generate;
mod interval;
mod log;
mod memory;
mod output;
mod paths;
mod program;
mod progress;
mod signals;

pub use common::{Common, LogFormat};
pub use fault::Fault;
pub use generate::Generate;
pub use interval::interval;
pub use memory::silence_refusals;
pub use output::print;
pub use paths::{
    NamedPath, file, files_in, files_of, is_hidden, keep_apart, keep_renameable, one_of,
};
pub use program::{Program, main};
pub use progress::{Progress, ProgressMode};
pub use signals::{die_of, end_at_once, on_abort};

pub use plmkit_contract::{Exit, Stop};
