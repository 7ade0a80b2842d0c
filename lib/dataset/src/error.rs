//! Errors of datasets.

use std::fmt::Display;
use std::path::Path;

use plmkit_cpu::OutOfMemory;
use plmkit_kit::{Exit, Failure, Fault};
use plmkit_store::StoreError;

/// Why a dataset cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file cannot be read, written or verified.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or an asked row is missing, options do not fit the dataset, or the system refuses memory.
    #[error(transparent)]
    Unfit(#[from] Fault),
}

impl DatasetError {
    /// The error of a file or a folder that does not belong to the dataset.
    pub(crate) fn content(path: &Path, what: impl Display) -> Self {
        Self::Store(StoreError::malformed(path, what))
    }

    /// The error of a file or a folder that is not there.
    pub(crate) fn missing(path: &Path, what: impl Display) -> Self {
        Fault::of_path(Exit::NoInput, path, what).into()
    }

    /// The error of options that do not fit the dataset.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Fault::usage(what).into()
    }
}

impl Failure for DatasetError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Unfit(fault) => fault.exit(),
        }
    }
}

impl From<OutOfMemory> for DatasetError {
    fn from(error: OutOfMemory) -> Self {
        Fault::new(Exit::Transient, error.to_string()).into()
    }
}
