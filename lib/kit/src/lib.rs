//! What all programs do alike: exit codes, the words of messages, the stop flag, and how panics and refused memory end.

#![warn(missing_docs)]

mod exit;
mod fault;
mod guard;
mod quote;
mod refusing;
mod regular;
mod stop;

pub use exit::{Exit, Failure, exit_of, exit_of_system};
pub use fault::Fault;
pub use guard::{catch_decoder_panic, is_catching_panic};
pub use quote::{LIST_SHOWN, Quoted, cause, io_text, one_line, path_text, plural};
pub use refusing::ExitingAllocator;
pub use regular::{check_fetched, check_regular, is_stream};
pub use stop::Stop;
