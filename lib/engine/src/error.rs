//! Why a run failed.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use plmkit_contract::{Exit, Failure, io_text, path_text};
use plmkit_esm2::EsmError;
use plmkit_store::StoreError;

use crate::parity::Parity;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model could not be loaded or could not compute.
    #[error(transparent)]
    Model(#[from] EsmError),
    /// A batches file holds rows that the run cannot embed: an unknown token, a row that another file has too, windows out of
    /// order, or rows of another set of shards.
    #[error("{0}")]
    Batches(String),
    /// Contacts are requested for proteins in windows.
    #[error(
        "--contacts: pairs of residues that no window holds have none; take --windows separate, or shards without \
         --long-policy window"
    )]
    Contacts,
    /// int8 vectors of the run's own sequences differ too much from f32 vectors.
    #[error(
        "{}: --dtype int8 is refused: {parity}; try --dtype bf16 or f32",
        path_text(.model)
    )]
    Parity {
        /// The checkpoint.
        model: PathBuf,
        /// The measured cosines.
        parity: Box<Parity>,
    },
    /// A worker reported an error that ends the run, or no worker is left.
    #[error("{message}")]
    Worker {
        /// The exit code of a run in one process that fails for the same reason.
        exit: Exit,
        /// The worker's message.
        message: String,
    },
    /// A worker process could not be started.
    #[error("cannot start a worker: {}", io_text(.0))]
    Start(#[source] std::io::Error),
    /// A run and its worker do not understand each other, or one of them has gone.
    #[error("the connection between a run and its worker broke: {}", io_text(.0))]
    Connection(std::io::Error),
    /// Vectors do not fit the columns of the output.
    #[error("cannot lay out vectors: {0}")]
    Layout(#[from] ArrowError),
    /// A thread could not be started.
    #[error("cannot start a thread: {}", io_text(.0))]
    Thread(#[from] std::io::Error),
}

impl Failure for EngineError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Model(error) => error.exit(),
            Self::Batches(_) | Self::Parity { .. } => Exit::Data,
            Self::Worker { exit, .. } => *exit,
            Self::Contacts => Exit::Usage,
            Self::Layout(_) => Exit::Internal,
            Self::Start(_) | Self::Connection(_) | Self::Thread(_) => Exit::Transient,
        }
    }
}

impl EngineError {
    /// Makes the error of a batches file.
    pub(crate) fn batches(path: &Path, what: impl Display) -> Self {
        Self::Batches(format!("{}: {what}", path_text(path)))
    }
}
