//! Errors of loading and computing.

use std::path::PathBuf;

use plmkit_contract::{Exit, Failure, NoSuchLayer, path_text};
use plmkit_cpu::ForwardError;

use crate::{CheckpointError, DeviceError, Dtype, Head};

/// Why a model cannot be loaded or a batch cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum EsmError {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model does not have a layer.
    #[error(transparent)]
    NoSuchLayer(#[from] NoSuchLayer),
    /// The checkpoint has no head that an output needs, or one that cannot be computed.
    #[error("{}: has no {head}; {reason}", path_text(.model))]
    NoHead {
        /// The checkpoint.
        model: PathBuf,
        /// The head.
        head: Head,
        /// What was expected.
        reason: String,
    },
    /// A sequence has more tokens than the model has positions.
    #[error(
        "{}: takes at most {longest} residues, found a row of {found}; expected shards by fasta-shard --max-residues {longest}, \
         with --long-policy truncate or window for longer proteins",
        path_text(.model)
    )]
    TooLong {
        /// The checkpoint.
        model: PathBuf,
        /// The most residues.
        longest: usize,
        /// Those of the row.
        found: usize,
    },
    /// The device or the kernels do not compute in a type.
    #[error("--dtype {dtype}: not computed {place}; expected {known}")]
    NoSuchDtype {
        /// The type.
        dtype: Dtype,
        /// The device, and the kernels if they were selected.
        place: String,
        /// The types in which they compute, for a message.
        known: String,
    },
    /// Memory is full. A smaller batch may fit.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
    /// The library for GPUs failed.
    #[error("{message}")]
    Library {
        /// The exit code of the program.
        exit: Exit,
        /// The library's words.
        message: String,
    },
}

impl EsmError {
    /// Whether smaller batches may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }
}

impl Failure for EsmError {
    fn exit(&self) -> Exit {
        match self {
            Self::Checkpoint(error) => error.exit(),
            Self::Device(error) => error.exit(),
            Self::NoSuchLayer(_) | Self::NoSuchDtype { .. } => Exit::Usage,
            Self::NoHead { .. } | Self::TooLong { .. } => Exit::Data,
            Self::OutOfMemory(_) | Self::Stopped => Exit::Transient,
            Self::Library { exit, .. } => *exit,
        }
    }
}

impl From<plmkit_cpu::OutOfMemory> for EsmError {
    fn from(error: plmkit_cpu::OutOfMemory) -> Self {
        Self::OutOfMemory(error.to_string())
    }
}

impl From<ForwardError> for EsmError {
    fn from(error: ForwardError) -> Self {
        match error {
            ForwardError::OutOfMemory(error) => error.into(),
            ForwardError::Stopped => Self::Stopped,
        }
    }
}
