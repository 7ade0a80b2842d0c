//! Errors of loading and computing.

use std::fmt::Display;
use std::io;
use std::path::Path;

use plmkit_cpu::ForwardError;
use plmkit_kit::{Exit, Failure, Fault, exit_of_system, io_text, one_line};
use serde::{Deserialize, Serialize};

use crate::device::Device;

/// Advice for a device that cannot be used.
pub const ON_THE_CPU: &str = "--device cpu computes on the CPU";

/// Why a model cannot be loaded or a batch cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EsmError {
    /// The checkpoint, the device or an option cannot be used: the file, what was expected and what was found.
    #[error(transparent)]
    Refused(#[from] Fault),
    /// Memory is full. A smaller batch may fit.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

impl EsmError {
    /// Whether smaller batches may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }

    /// The machine lacks a GPU or library, or has one that cannot be used.
    pub fn unavailable(message: String) -> Self {
        Fault::new(Exit::Unavailable, message).into()
    }

    /// The driver of a device does not work, in its own words.
    pub fn of_driver(device: Device, found: &str) -> Self {
        Self::unavailable(format!(
            "device '{device}': the NVIDIA driver does not work: {found}; {ON_THE_CPU}"
        ))
    }

    /// A file or folder of a checkpoint, and what was expected and found.
    pub(crate) fn of_file(exit: Exit, path: &Path, reason: impl Display) -> Self {
        let reason = one_line(&reason.to_string(), usize::MAX);
        Fault::of_path(exit, path, reason).into()
    }

    /// A file is damaged, or not that of an ESM.
    pub(crate) fn invalid(path: &Path, reason: impl Display) -> Self {
        Self::of_file(Exit::Data, path, reason)
    }

    /// A file or folder cannot be opened.
    pub(crate) fn cannot_open(path: &Path, error: &io::Error) -> Self {
        let exit = exit_of_system(error).unwrap_or(Exit::NoInput);
        Self::of_file(exit, path, format!("cannot open: {}", io_text(error)))
    }
}

impl Failure for EsmError {
    fn exit(&self) -> Exit {
        match self {
            Self::Refused(fault) => fault.exit(),
            Self::OutOfMemory(_) | Self::Stopped => Exit::Transient,
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
