//! Why a set of shards could not be made.

use std::io;

use plmkit_contract::{Exit, Failure, Quoted, io_text};
use plmkit_store::StoreError;

use crate::compression::Compression;
use crate::input::Input;
use crate::residue::InvalidResidue;

/// Why a run ended without a set of shards. Nothing of it is left in the output folder.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The input does not exist or cannot be opened.
    #[error("{0}: cannot open: {text}", text = io_text(.1))]
    Open(Input, #[source] io::Error),
    /// Reading failed midway.
    #[error("{0}: cannot read: {text}", text = io_text(.1))]
    Read(Input, #[source] io::Error),
    /// The compressed stream ends before its end.
    #[error("{0}: the {1} stream is cut: expected its end, found the end of the file")]
    Truncated(Input, Compression),
    /// The compressed stream is damaged, in the decoder's words.
    #[error("{0}: the {1} stream is damaged: {2}")]
    Damaged(Input, Compression, String),
    /// A compression that is recognised and not read.
    #[error("{0}: expected plain, gzip, bgzip or zstd, found {1}")]
    Unsupported(Input, Compression),
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
    /// One record of an input is at fault.
    #[error("{input}: record {record}{}: {problem}", in_words(.id.as_deref()))]
    Record {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// Its id, as far as it can be read.
        id: Option<String>,
        /// What is wrong.
        problem: RecordProblem,
    },
    /// There is no record in any input.
    #[error("{0}: no FASTA records: expected at least one, found none")]
    NoRecords(String),
    /// The input is DNA or RNA.
    #[error(
        "{0}: expected proteins, found nucleic acids: nearly all letters of most records are A, C, G, T, U or N; --alphabet protein takes them as residues"
    )]
    NucleicAcids(Input),
    /// An input is a file of the output folder.
    #[error("{0}: expected an input that is no file of the set of shards in --out")]
    InputInFolder(Input),
    /// An output cannot be written, or other work is there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread could not be started.
    #[error("cannot start a thread: {text}; fewer may do: --threads", text = io_text(.0))]
    Thread(#[from] io::Error),
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordProblem {
    /// A header line is longer than so many bytes.
    #[error("the header line is too long: expected at most {0} bytes")]
    HeaderTooLong(usize),
    /// An id in another encoding.
    #[error("expected an id in UTF-8, found other bytes")]
    IdEncoding,
    /// The lines of the file end in carriage returns, so that all of it is one header.
    #[error("expected lines that end in LF or CRLF, found a carriage return inside the header")]
    LineEnd,
    /// `>` or `;`, which begins a record or a comment, where there is neither. Files that were joined, the first without a
    /// final line end, have one.
    #[error("found '{0}' in its sequence; expected headers at the start of a line and no comments")]
    Misplaced(char),
    /// A sequence is longer than so many bytes.
    #[error("the sequence is too long: expected at most {0} bytes")]
    SequenceTooLong(usize),
    /// A character is no residue.
    #[error(
        "expected residues, found '{found}' at position {position}; --invalid x replaces such characters, --invalid reject sets the record aside",
        found = .0.found.escape_ascii(), position = .0.position
    )]
    InvalidResidue(InvalidResidue),
    /// A header has no id.
    #[error("expected an id after '>', found none; --invalid reject sets the record aside")]
    NoId,
    /// Two records have one id: the first is this record of this input.
    #[error(
        "expected a new id, found that of record {1} of {0}; --duplicate-ids suffix renames, keep allows it"
    )]
    DuplicateId(Input, u64),
    /// A record has the id that an earlier one was given.
    #[error(
        "its id is one that --duplicate-ids suffix gave to an earlier record; expected inputs that can be read twice, so that all ids are known first: give files, not pipes"
    )]
    GivenId,
}

fn in_words(id: Option<&str>) -> String {
    id.map_or_else(String::new, |id| format!(" {}", Quoted(id)))
}

impl ShardError {
    /// Why a stream of `input` could not be read or decoded.
    pub(crate) fn from_stream(input: &Input, compression: Compression, source: io::Error) -> Self {
        let input = input.clone();
        match source.kind() {
            _ if source.raw_os_error().is_some() => Self::Read(input, source),
            io::ErrorKind::UnexpectedEof => Self::Truncated(input, compression),
            _ => Self::Damaged(input, compression, io_text(&source)),
        }
    }

    /// Whether damaged bytes may be the reason.
    pub(crate) fn is_of_content(&self) -> bool {
        matches!(
            self,
            Self::NotFasta { .. } | Self::Record { .. } | Self::NucleicAcids(_)
        )
    }
}

impl Failure for ShardError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Open(..) => Exit::NoInput,
            Self::Read(..) => Exit::Io,
            Self::Thread(_) => Exit::Transient,
            Self::InputInFolder(_) => Exit::Usage,
            _ => Exit::Data,
        }
    }
}
