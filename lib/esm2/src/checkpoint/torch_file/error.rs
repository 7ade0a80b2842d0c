//! Why a file is not one of PyTorch that can be read.

use plmkit_contract::{Quoted, one_line};

/// What is wrong with a weight file of PyTorch.
#[derive(Debug, thiserror::Error)]
pub enum TorchFileError {
    /// It is cut off, or no such file at all.
    #[error("damaged or not a PyTorch file: {}", one_line(.0, usize::MAX))]
    Damaged(String),
    /// A record is not as it was saved.
    #[error("damaged: record {} has CRC-32 {found:08x}, expected {expected:08x}", Quoted(.record))]
    Checksum {
        /// Its name.
        record: String,
        /// As saved in the directory of the archive.
        expected: u32,
        /// As computed from its bytes.
        found: u32,
    },
    /// It is a bare pickle.
    #[error(
        "saved in the format of PyTorch before 1.6, which is not read: save the model again with transformers' \
         save_pretrained"
    )]
    Legacy,
    /// A record is compressed or encrypted, which PyTorch does not do.
    #[error("record {} is compressed or encrypted: save the model again with transformers' save_pretrained", Quoted(.0))]
    Packed(String),
    /// Its pickle makes an object of another class than a state dictionary has.
    #[error(
        "has an object of class {}, which is not read: save the model again with transformers' save_pretrained",
        Quoted(.0)
    )]
    Class(String),
    /// Its pickle is that of another program than the training of ESM-2.
    #[error(
        "a fair-esm checkpoint, which is not read: convert-fair-esm.py makes a folder of it that is"
    )]
    FairEsm,
}

impl TorchFileError {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }
}
