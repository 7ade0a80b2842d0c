//! Why a run failed.

use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use plmkit_contract::{Exit, Failure, Quoted, io_text, path_text};
use plmkit_esm2::{EsmError, VarlenError};
use plmkit_logs::LogError;
use plmkit_store::StoreError;

use crate::parity::Parity;
use crate::stitch::Disorder;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model could not be loaded or could not compute.
    #[error(transparent)]
    Model(#[from] EsmError),
    /// The event log cannot be opened.
    #[error(transparent)]
    Events(#[from] LogError),
    /// A batch holds what the model cannot read.
    #[error("{}: record batch {batch}: {source}", path_text(.path))]
    Batch {
        /// The batches file.
        path: PathBuf,
        /// The record batch.
        batch: usize,
        /// What is wrong.
        source: VarlenError,
    },
    /// A row is in the batches twice.
    #[error(
        "{}: ordinal {ordinal}, start {start}: already in {}; expected each row of one set of shards once",
        path_text(.path), path_text(.first)
    )]
    Doubled {
        /// The file that has it again.
        path: PathBuf,
        /// The file that has it first.
        first: PathBuf,
        /// The record's 0-based position in the whole input.
        ordinal: u64,
        /// Offset of the window in the protein, in residues.
        start: u32,
    },
    /// The windows of a protein cannot be put together.
    #[error(
        "{}: record batch {batch}: ordinal {ordinal} {}: {what}; pack-batches --force packs them anew",
        path_text(.path), Quoted(.id)
    )]
    Windows {
        /// The batches file.
        path: PathBuf,
        /// The record batch.
        batch: usize,
        /// The protein's 0-based position in the whole input.
        ordinal: u64,
        /// Its id.
        id: String,
        /// What was expected and what was found.
        what: String,
    },
    /// Some batches were made from windows and some were not.
    #[error(
        "{}: expected batches {} as in {}, found batches {}",
        path_text(.path), of_windows(!.windows), path_text(.first), of_windows(*.windows)
    )]
    Mixed {
        /// The file that differs from the first.
        path: PathBuf,
        /// The first file.
        first: PathBuf,
        /// Whether those of `path` were made from windows.
        windows: bool,
    },
    /// Batches of two sets of shards, in which the same ordinals are other proteins.
    #[error(
        "{}: not of the same set of shards as {}: its FASTA, its sample or the options of fasta-shard or pack-batches are others",
        path_text(.path),
        path_text(.first)
    )]
    OtherSource {
        /// The file that differs from the first.
        path: PathBuf,
        /// The first file.
        first: PathBuf,
    },
    /// Contacts of proteins in windows.
    #[error(
        "--contacts: pairs of residues that no window holds have none; take --windows separate, or shards without \
         --long-policy window"
    )]
    Contacts,
    /// In int8 the vectors of the run's own sequences are too far from those in f32.
    #[error(
        "{}: --dtype int8 is refused: {parity}; try --dtype bf16 or f32",
        path_text(.model)
    )]
    Parity {
        /// The checkpoint.
        model: PathBuf,
        /// What was measured.
        parity: Parity,
    },
    /// A worker gave up, or no worker is left.
    #[error("{message}")]
    Worker {
        /// The exit code of a run in one process that ends like that.
        exit: Exit,
        /// What is wrong.
        message: String,
    },
    /// A worker process could not be started.
    #[error("cannot start a worker: {}", io_text(.0))]
    Start(std::io::Error),
    /// A run and its worker do not understand each other, or one of them has gone.
    #[error("the connection between a run and its worker broke: {}", io_text(.0))]
    Connection(std::io::Error),
    /// Vectors could not be laid out as columns.
    #[error("cannot lay out vectors: {0}")]
    Layout(#[from] ArrowError),
    /// A thread could not be started.
    #[error("cannot start a thread: {}", io_text(.0))]
    Thread(#[from] std::io::Error),
}

fn of_windows(windows: bool) -> &'static str {
    if windows {
        "of --long-policy window"
    } else {
        "without windows"
    }
}

impl Failure for EngineError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Model(error) => error.exit(),
            Self::Events(error) => error.exit(),
            Self::Batch { source, .. } => source.exit(),
            Self::Doubled { .. }
            | Self::Windows { .. }
            | Self::Mixed { .. }
            | Self::OtherSource { .. }
            | Self::Parity { .. } => Exit::Data,
            Self::Worker { exit, .. } => *exit,
            Self::Contacts => Exit::Usage,
            Self::Layout(_) => Exit::Internal,
            Self::Start(_) | Self::Connection(_) | Self::Thread(_) => Exit::Transient,
        }
    }
}

impl EngineError {
    pub(crate) fn batch(path: &Path, batch: usize, source: VarlenError) -> Self {
        Self::Batch {
            path: path.to_owned(),
            batch,
            source,
        }
    }

    pub(crate) fn windows(path: &Path, batch: usize, disorder: Disorder) -> Self {
        Self::Windows {
            path: path.to_owned(),
            batch,
            ordinal: disorder.ordinal,
            id: disorder.id,
            what: disorder.what,
        }
    }
}
