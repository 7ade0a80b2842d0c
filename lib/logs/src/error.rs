//! What can go wrong with a log.

use std::io;
use std::path::PathBuf;

use plmkit_contract::{Exit, Failure, io_text, one_line, path_text};
use plmkit_store::StoreError;

/// How much of a reason a message shows: it quotes the log.
const REASON_CHARS: usize = 200;

/// An error with a run-event log or a GPU sample log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file cannot be opened for reading, or not be published.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading failed midway.
    #[error("{}: cannot read: {}", path_text(.path), io_text(.source))]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}: line {line}: {}", path_text(.path), one_line(.reason, REASON_CHARS))]
    Line {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A Parquet file does not hold samples.
    #[error("{}: not GPU samples: {}", path_text(.path), one_line(.reason, REASON_CHARS))]
    NotSamples {
        /// The file.
        path: PathBuf,
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

impl Failure for LogError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Line { .. } | Self::NotSamples { .. } => Exit::Data,
            Self::Create { .. } | Self::Foreign { .. } => Exit::CannotCreate,
            Self::Read { .. } | Self::Write { .. } => Exit::Io,
        }
    }
}
