//! What can go wrong with a log.

use std::io;
use std::path::PathBuf;

use plmkit_contract::{Exit, Failure};
use plmkit_store::{io_text, path_text};

/// An error with a run-event log or a GPU sample log.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log cannot be opened for reading.
    #[error("{}: cannot open: {}", path_text(.path), io_text(.source))]
    Open {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed midway.
    #[error("{}: cannot read: {}", path_text(.path), io_text(.source))]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}: line {line}: {}", path_text(.path), shown(.reason))]
    Line {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The log cannot be created or opened for writing.
    #[error("{}: cannot create: {}", path_text(.path), io_text(.source))]
    Create {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A log is appended to, and what is there is something else.
    #[error("{}: exists and is not {expected}: choose another path or remove it", path_text(.path))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What a log of this kind is called.
        expected: &'static str,
    },
    /// Writing failed midway.
    #[error("{}: cannot write: {}", path_text(.path), io_text(.source))]
    Write {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Failure for TelemetryError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { .. } => Exit::NoInput,
            Self::Line { .. } => Exit::Data,
            Self::Create { .. } | Self::Foreign { .. } => Exit::CannotCreate,
            Self::Read { .. } | Self::Write { .. } => Exit::Io,
        }
    }
}

/// What a message quotes comes from outside: it stays one line, and a short one.
fn shown(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut shown: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_stays_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}[1m"), "a\\nb\\u{1b}[1m");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 201);
    }
}
