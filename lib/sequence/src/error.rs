//! Why a set of shards could not be made.

use std::io;

use plmkit_contract::{Exit, Failure, io_text};
use plmkit_store::StoreError;

use crate::Quoted;
use crate::fasta::FastaError;
use crate::input::Input;
use crate::residue::InvalidResidue;

/// Why a run ended without a set of shards. Nothing of it is left in the output folder.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// An input is not there, damaged, or not FASTA.
    #[error(transparent)]
    Fasta(#[from] FastaError),
    /// An output cannot be written, or other work is there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread could not be started.
    #[error("cannot start a thread: {}; fewer may do: --threads", io_text(.0))]
    Thread(#[from] io::Error),
    /// There is no record in any input.
    #[error("{inputs}: no FASTA records: expected at least one, found none")]
    NoRecords {
        /// The inputs.
        inputs: String,
    },
    /// A character is no residue.
    #[error("{input}: record {record} {}: expected residues, found '{}' at position {}; --invalid x replaces such characters, --invalid reject sets the record aside",
        Quoted(id), residue.found.escape_ascii(), residue.position)]
    InvalidResidue {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// Its id.
        id: String,
        /// The character and where it is.
        residue: InvalidResidue,
    },
    /// A header has no id.
    #[error(
        "{input}: record {record}: expected an id after '>', found none; --invalid reject sets the record aside"
    )]
    NoId {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
    },
    /// Two records have one id.
    #[error(
        "{input}: record {record} {}: expected a new id, found that of record {first_record} of {first_input}; --duplicate-ids suffix renames, keep allows it",
        Quoted(id)
    )]
    DuplicateId {
        /// The input of the second.
        input: Input,
        /// The 1-based number of the second.
        record: u64,
        /// The id.
        id: String,
        /// The input of the first.
        first_input: Input,
        /// The 1-based number of the first.
        first_record: u64,
    },
    /// A record has the id that an earlier one was given.
    #[error(
        "{input}: record {record} {}: its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes",
        Quoted(id)
    )]
    GivenId {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The id.
        id: String,
    },
    /// The input is DNA or RNA.
    #[error(
        "{input}: expected proteins, found nucleic acids: nearly all letters of most records are A, C, G, T, U or N; --alphabet protein takes them as residues"
    )]
    NucleicAcids {
        /// The input.
        input: Input,
    },
    /// An input is a file of the output folder.
    #[error("{input}: expected an input that is no file of the set of shards in --out")]
    InputInFolder {
        /// The input.
        input: Input,
    },
}

impl ShardError {
    /// Whether damaged bytes may be the reason.
    pub(crate) fn is_of_content(&self) -> bool {
        match self {
            Self::Fasta(error) => !matches!(error, FastaError::Source(_)),
            Self::InvalidResidue { .. }
            | Self::NoId { .. }
            | Self::DuplicateId { .. }
            | Self::GivenId { .. }
            | Self::NucleicAcids { .. } => true,
            _ => false,
        }
    }
}

impl Failure for ShardError {
    fn exit(&self) -> Exit {
        match self {
            Self::Fasta(error) => error.exit(),
            Self::Store(error) => error.exit(),
            Self::Thread(_) => Exit::Transient,
            Self::InputInFolder { .. } => Exit::Usage,
            Self::NoRecords { .. }
            | Self::InvalidResidue { .. }
            | Self::NoId { .. }
            | Self::DuplicateId { .. }
            | Self::GivenId { .. }
            | Self::NucleicAcids { .. } => Exit::Data,
        }
    }
}
