//! Errors of making a set of shards.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::UnknownResidue;
use plmkit_kit::{Exit, Failure, Quoted, io_text, path_text};
use plmkit_store::StoreError;

use crate::compression::Compression;
use crate::input::shown;

/// Why a run made no set of shards. It leaves nothing in the output folder.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// A record of an input, counted from 1, is invalid.
    #[error("{path}: record {1}{2}", path = path_text(.0))]
    Record(PathBuf, u64, String),
    /// The text of an input is not FASTA, or has another alphabet; with the expected and the found content.
    #[error("{path}: {1}", path = path_text(.0))]
    Text(PathBuf, String),
    /// An input is a file of the output folder.
    #[error("{path}: expected an input that is no file of the set of shards in --out", path = path_text(.0))]
    InputInFolder(PathBuf),
    /// An input cannot be read or is damaged, or an output cannot be written or is other work.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread could not be started.
    #[error("cannot start a thread: {text}; fewer may do: --threads", text = io_text(.0))]
    Thread(#[from] io::Error),
}

/// Describes why a record is invalid: the end of a message, with its id, if it can be read, and the expected and the found content.
pub(crate) fn invalid_record(id: Option<&str>, problem: impl Display) -> String {
    let id = id.map(|id| format!(" {}", Quoted(id)));
    format!("{}: {problem}", id.unwrap_or_default())
}

/// Describes a record with a character that is no residue, or no base of a contig.
pub(crate) fn unknown_residue(
    id: Option<&str>,
    unknown: &UnknownResidue,
    translates: bool,
) -> String {
    let UnknownResidue { position, found } = unknown;
    let found = found.escape_ascii();
    let expected = if translates {
        "bases for --translate"
    } else {
        "residues"
    };
    let problem = format_args!(
        "expected {expected}, found '{found}' at position {position}; --invalid x replaces such characters, --invalid reject sets the record aside"
    );
    invalid_record(id, problem)
}

impl ShardError {
    /// Makes the error of inputs without records.
    pub fn no_records(inputs: &[PathBuf]) -> Self {
        let names = inputs.iter().map(|input| shown(input).to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        let what = "no FASTA records: expected at least one, found none";
        StoreError::malformed(Path::new(&names), what).into()
    }

    /// Makes the error of a stream of `input` that could not be read or decoded.
    pub(crate) fn from_stream(input: &Path, compression: Compression, source: &io::Error) -> Self {
        let input = shown(input);
        let what = match (source.raw_os_error(), source.kind()) {
            (Some(errno), _) => {
                let source = io::Error::from_raw_os_error(errno);
                return StoreError::cannot_read(input)(source).into();
            }
            (_, io::ErrorKind::UnexpectedEof) => format!(
                "the {compression} stream is cut, or other bytes follow it: expected its end, found the end of the file"
            ),
            _ => format!("the {compression} stream is damaged: {}", io_text(source)),
        };
        StoreError::malformed(input, what).into()
    }

    /// Whether damaged bytes may be the reason.
    pub(crate) fn is_of_content(&self) -> bool {
        matches!(self, Self::Record(..) | Self::Text(..))
    }
}

impl Failure for ShardError {
    fn exit(&self) -> Exit {
        match self {
            Self::Store(error) => error.exit(),
            Self::Record(..) | Self::Text(..) => Exit::Data,
            Self::Thread(_) => Exit::Transient,
            Self::InputInFolder(_) => Exit::Usage,
        }
    }
}
