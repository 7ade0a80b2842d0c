//! Why an input is not read as FASTA.

use plmkit_contract::{Exit, Failure};

use crate::input::Input;
use crate::source::SourceError;

/// Why an input is not read as FASTA.
#[derive(Debug, thiserror::Error)]
pub enum FastaError {
    /// The bytes cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The first line that is not blank does not begin a record.
    #[error("{input}: not FASTA: expected '>' at the start of line {line}, found {found}")]
    NotFasta {
        /// The input.
        input: Input,
        /// The 1-based line.
        line: u64,
        /// Its first characters, quoted.
        found: String,
    },
    /// A header line without end.
    #[error(
        "{input}: record {record}: the header line is too long: expected at most {limit} bytes"
    )]
    HeaderTooLong {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The limit in bytes.
        limit: usize,
    },
    /// An id in another encoding.
    #[error("{input}: record {record} {id}: expected an id in UTF-8, found other bytes")]
    IdEncoding {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The id, quoted, as far as it can be read.
        id: String,
    },
    /// The lines of the file end in carriage returns, so that all of it is one header.
    #[error(
        "{input}: record {record} {id}: expected lines that end in LF or CRLF, found a carriage return inside the header"
    )]
    LineEnd {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The id, quoted.
        id: String,
    },
    /// A character that begins a record or a comment, where there is neither. Files that were joined, the first without a
    /// final line end, have one.
    #[error(
        "{input}: record {record} {id}: found '{found}' in its sequence; expected headers at the start of a line and no comments"
    )]
    Misplaced {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The id, quoted.
        id: String,
        /// `>` or `;`.
        found: char,
    },
    /// A sequence without end.
    #[error(
        "{input}: record {record} {id}: the sequence is too long: expected at most {limit} bytes"
    )]
    SequenceTooLong {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// The id, quoted.
        id: String,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Failure for FastaError {
    fn exit(&self) -> Exit {
        match self {
            Self::Source(error) => error.exit(),
            _ => Exit::Data,
        }
    }
}
