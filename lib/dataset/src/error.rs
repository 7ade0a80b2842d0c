//! Errors of datasets.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use plmkit_contract::{Exit, Failure, Quoted, path_text};
use plmkit_cpu::OutOfMemory;
use plmkit_store::StoreError;

use crate::AskedIds;

/// The missing ids that a message names.
const SHOWN: usize = 5;

/// Why a dataset cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file cannot be read, written or verified.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the dataset is missing.
    #[error("{}: {what}", path_text(path))]
    Missing {
        /// The file or the folder.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
    /// Options do not fit the dataset.
    #[error("{0}")]
    Usage(String),
    /// The system refuses memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Asked ids have no rows.
    #[error("{} of {asked} ids are not in the dataset: {}{why}", missing.len(), first(missing))]
    Unknown {
        /// These ids.
        missing: Vec<String>,
        /// How many were asked.
        asked: usize,
        /// Why they have none, as [`OpenedDataset::explain`](crate::OpenedDataset::explain) finds it; empty by default.
        why: String,
    },
}

impl DatasetError {
    /// The error of a file or a folder that does not belong to the dataset.
    pub(crate) fn content(path: &Path, what: impl Display) -> Self {
        Self::Store(StoreError::malformed(path, what))
    }

    pub(crate) fn missing(path: &Path, what: impl Into<String>) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        Self::Missing { path, what }
    }

    /// The error of the asked ids that are `missing`.
    pub fn unknown(ids: &AskedIds, missing: impl Fn(&str) -> bool) -> Self {
        let missing = ids.in_order().iter().filter(|id| missing(id));
        Self::Unknown {
            missing: missing.cloned().collect(),
            asked: ids.in_order().len(),
            why: String::new(),
        }
    }

    pub(crate) fn stopped() -> Self {
        Self::Store(StoreError::Stopped)
    }
}

fn first(ids: &[String]) -> String {
    let first = ids.iter().take(SHOWN).map(|id| Quoted(id).to_string());
    let more = if ids.len() > SHOWN { ", …" } else { "" };
    first.collect::<Vec<_>>().join(", ") + more
}

impl Failure for DatasetError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Missing { .. } => Exit::NoInput,
            Self::Usage(_) => Exit::Usage,
            Self::Memory(_) => Exit::Transient,
            Self::Unknown { .. } => Exit::Negative,
        }
    }
}
