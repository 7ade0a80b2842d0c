//! Errors of datasets.

use std::fmt::Display;
use std::path::Path;

use plmkit_contract::{Exit, Failure, path_text};
use plmkit_cpu::OutOfMemory;
use plmkit_store::StoreError;

/// Why a dataset cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file cannot be read, written or verified.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refuses memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A file or an asked row is missing, or options do not fit the dataset.
    #[error("{1}")]
    Unfit(Exit, String),
}

impl DatasetError {
    /// The error of a file or a folder that does not belong to the dataset.
    pub(crate) fn content(path: &Path, what: impl Display) -> Self {
        Self::Store(StoreError::malformed(path, what))
    }

    /// The error of a file or a folder that is not there.
    pub(crate) fn missing(path: &Path, what: impl Display) -> Self {
        Self::Unfit(Exit::NoInput, format!("{}: {what}", path_text(path)))
    }

    /// The error of options that do not fit the dataset.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::Unfit(Exit::Usage, what.into())
    }
}

impl Failure for DatasetError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Memory(_) => Exit::Transient,
            Self::Unfit(exit, _) => *exit,
        }
    }
}
