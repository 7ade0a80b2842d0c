//! Logs of whole lines: files that grow while they are read.
//!
//! A log is no atomic file: people follow it, and a killed writer must leave what it saw. The unit that is
//! there or not there is the line, and a line is there once its newline is. A reader leaves out a last line
//! without one; a writer that appends cuts it off first.

mod append;
mod lines;

pub(crate) use append::{AppendLog, LogKind};
pub(crate) use lines::{CompleteLines, LineRead, MAX_LINE};
