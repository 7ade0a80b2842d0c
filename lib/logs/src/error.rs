//! Errors of logs.

use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{Exit, Failure, io_text, one_line, path_text};
use plmkit_store::StoreError;

/// The length of a reason in a message. A reason may quote the log.
const REASON_CHARS: usize = 200;

/// An error with a run-event log or a GPU sample log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file cannot be read or published.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A line is malformed.
    #[error("{}: line {line}: {}", path_text(.path), one_line(.reason, REASON_CHARS))]
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
    /// An existing file is not a log of the kind that is appended to.
    #[error("{}: exists and is not {expected}: choose another path or remove it", path_text(.path))]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The name of the kind of log.
        expected: &'static str,
    },
}

impl LogError {
    /// Returns the error of a malformed line.
    pub fn line(path: &Path, line: u64, reason: impl Into<String>) -> Self {
        Self::Line {
            path: path.to_owned(),
            line,
            reason: reason.into(),
        }
    }
}

impl Failure for LogError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Line { .. } => Exit::Data,
            Self::Create { .. } | Self::Foreign { .. } => Exit::CannotCreate,
        }
    }
}
