//! Errors of making a set of shards.

use std::io;
use std::path::PathBuf;

use plmkit_contract::{Exit, Failure, Quoted, io_text, path_text};
use plmkit_store::StoreError;

use crate::compression::Compression;
use crate::input::Input;

/// Why a run made no set of shards. It leaves nothing in the output folder.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The input does not exist or cannot be opened.
    #[error("{0}: cannot open: {text}", text = io_text(.1))]
    Open(Input, #[source] io::Error),
    /// Reading failed.
    #[error("{0}: cannot read: {text}", text = io_text(.1))]
    Read(Input, #[source] io::Error),
    /// The compressed stream is truncated, or followed by too few bytes for another.
    #[error(
        "{0}: the {1} stream is cut, or other bytes follow it: expected its end, found the end of the file"
    )]
    Truncated(Input, Compression),
    /// The compressed stream is damaged; with the decoder's message.
    #[error("{0}: the {1} stream is damaged: {2}")]
    Damaged(Input, Compression, String),
    /// The compression is not supported.
    #[error("{0}: expected plain, gzip, bgzip or zstd, found {1}")]
    Unsupported(Input, Compression),
    /// The first line that is not blank does not start a record.
    #[error("{input}: not FASTA: expected '>' at the start of line {line}, found {found}")]
    NotFasta {
        /// The input.
        input: Input,
        /// The 1-based line.
        line: u64,
        /// Its first characters, quoted.
        found: String,
    },
    /// A record of an input is invalid.
    #[error("{input}: record {record}{}: {problem}", quoted_id(.id.as_deref()))]
    Record {
        /// The input.
        input: Input,
        /// The 1-based record.
        record: u64,
        /// Its id, if it can be read.
        id: Option<String>,
        /// The expected and the found content.
        problem: String,
    },
    /// The inputs have no records.
    #[error("{0}: no FASTA records: expected at least one, found none")]
    NoRecords(String),
    /// The input is DNA or RNA.
    #[error(
        "{0}: expected proteins, found nucleic acids: nearly all letters of most records are A, C, G, T, U or N; --translate orf or six-frame translates them, --alphabet protein takes them as residues"
    )]
    NucleicAcids(Input),
    /// The input to be translated is not DNA or RNA.
    #[error(
        "{0}: expected nucleic acids, found proteins: in most records more than one letter of 20 is not A, C, G, T, U or N; without --translate they are taken as they are, --alphabet nucleotide translates them"
    )]
    Proteins(Input),
    /// An input is a file of the output folder.
    #[error("{0}: expected an input that is no file of the set of shards in --out")]
    InputInFolder(Input),
    /// A known dataset cannot be used.
    #[error("{file}: {1}", file = path_text(.0))]
    Known(PathBuf, String),
    /// An output cannot be written, or is other work.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread could not be started.
    #[error("cannot start a thread: {text}; fewer may do: --threads", text = io_text(.0))]
    Thread(#[from] io::Error),
}

fn quoted_id(id: Option<&str>) -> String {
    id.map_or_else(String::new, |id| format!(" {}", Quoted(id)))
}

impl ShardError {
    /// Makes the error of a stream of `input` that could not be read or decoded.
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
            Self::NotFasta { .. } | Self::Record { .. } | Self::NucleicAcids(_) | Self::Proteins(_)
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
