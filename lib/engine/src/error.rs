//! Why a run failed.

use std::fmt::Display;
use std::io;

use plmkit_esm2::EsmError;
use plmkit_kit::{Exit, Failure, Fault};
use plmkit_store::StoreError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model could not be loaded or could not compute.
    #[error(transparent)]
    Model(#[from] EsmError),
    /// The batches files hold rows that the run cannot embed, the options do not fit them, vectors in 8 bits differ too much from f32,
    /// the machine refuses a thread, or the model is no longer the one that was described.
    #[error(transparent)]
    Run(#[from] Fault),
}

impl Failure for EngineError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Model(error) => error.exit(),
            Self::Run(fault) => fault.exit(),
        }
    }
}

impl EngineError {
    /// Makes the error of data that has this name.
    pub(crate) fn data(name: impl Display, what: impl Display) -> Self {
        Fault::new(Exit::Data, format!("{name}: {what}")).into()
    }

    /// Makes the error of memory that is full.
    pub(crate) fn out_of_memory(what: String) -> Self {
        EsmError::OutOfMemory(what).into()
    }

    /// Makes the error of a thread that cannot be started.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(crate) fn no_thread(error: io::Error) -> Self {
        Fault::of_system(Exit::Transient, "cannot start a thread", &error).into()
    }
}
