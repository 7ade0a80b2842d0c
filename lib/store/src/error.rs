//! What can be wrong with a file.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use plmkit_contract::{Exit, Failure, MetadataError, SealedError, io_text, one_line, path_text};
use rustix::io::Errno;

/// Why a file could not be read or written. Each message but the last starts with the path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An input is not there or may not be opened.
    #[error("{}: cannot open: {}", path_text(.path), io_text(.source))]
    Open {
        /// The input.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An output cannot be created.
    #[error("{}: cannot create: {}", path_text(.path), io_text(.source))]
    Create {
        /// The output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed midway.
    #[error("{}: cannot read: {}", path_text(.path), io_text(.source))]
    Read {
        /// The input.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Writing failed midway; nothing was published.
    #[error("{}: cannot write: {}", path_text(.path), write_text(.source))]
    Write {
        /// The output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bytes are not those of the format.
    #[error("{}: {}", path_text(.path), whole_line(.what))]
    Malformed {
        /// The input.
        path: PathBuf,
        /// What was expected, what was found.
        what: String,
    },
    /// The file may be whole, and is of another kind, program or contract.
    #[error("{}: {}", path_text(.path), whole_line(.what))]
    Foreign {
        /// The input.
        path: PathBuf,
        /// What was expected, what was found.
        what: String,
    },
    /// Some bytes are not those that were written, or are not there any more.
    #[error("{}: {}", path_text(.path), damage(.bytes))]
    Damaged {
        /// The input.
        path: PathBuf,
        /// Where the damage is; it may be as small as a bit.
        bytes: Range<u64>,
    },
    /// The output is already there and holds something else.
    #[error("{}: exists and holds other work ({}); --force replaces it", path_text(.path), whole_line(.difference))]
    Exists {
        /// The output.
        path: PathBuf,
        /// What differs.
        difference: String,
    },
    /// Another process is at work on the same output.
    #[error("{}: another process is writing it", path_text(.path))]
    Busy {
        /// The output.
        path: PathBuf,
    },
    /// A column that a writer was handed does not fit its schema.
    #[error("{}: cannot encode: {source}", path_text(.path))]
    Encode {
        /// The output.
        path: PathBuf,
        /// Why.
        source: ArrowError,
    },
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

/// What the error of an existing output ends with.
const REPLACES: &str = "; --force replaces it";

fn damage(bytes: &Range<u64>) -> String {
    let Range { start, end } = bytes;
    format!("damaged: bytes {start} to {end} are not as they were written")
}

impl Failure for StoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { source, .. } if is_out_of_files(source) => Exit::Io,
            Self::Open { .. } => Exit::NoInput,
            // A full disk shows at the first byte or at the last: one exit code for both.
            Self::Create { source, .. } if is_out_of_space(source) || is_out_of_files(source) => {
                Exit::Io
            }
            Self::Create { .. } | Self::Exists { .. } => Exit::CannotCreate,
            Self::Read { .. } | Self::Write { .. } => Exit::Io,
            Self::Busy { .. } | Self::Stopped => Exit::Transient,
            Self::Malformed { .. } | Self::Foreign { .. } | Self::Damaged { .. } => Exit::Data,
            Self::Encode { .. } => Exit::Internal,
        }
    }
}

impl StoreError {
    /// The same error where an output is looked at that is there already: what is damaged stays damaged, and a file
    /// of another kind is other work.
    #[must_use]
    pub fn of_existing(self) -> Self {
        match self {
            // A folder or a device is in the way, or a file of which not even that can be known.
            Self::Open { path, source } if source.kind() != io::ErrorKind::NotFound => {
                Self::Create { path, source }
            }
            Self::Foreign { path, what } => Self::Exists {
                path,
                difference: what,
            },
            Self::Malformed { path, what } => Self::malformed(&path, what + REPLACES),
            Self::Damaged { path, bytes } => {
                let what = damage(&bytes) + REPLACES;
                Self::malformed(&path, what)
            }
            other => other,
        }
    }

    /// Makes the error of an input at `path` that cannot be opened.
    pub fn cannot_open(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Open {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of an output at `path` that cannot be created.
    pub fn cannot_create(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Create {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of a file at `path` that cannot be read.
    pub fn cannot_read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of a file at `path` that cannot be written.
    pub fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn metadata(path: &Path, error: &MetadataError) -> Self {
        Self::foreign_if(error.is_of_another_kind(), path, error)
    }

    pub(crate) fn sealed(path: &Path, error: &SealedError) -> Self {
        Self::foreign_if(matches!(error, SealedError::Foreign { .. }), path, error)
    }

    fn foreign_if(is_foreign: bool, path: &Path, error: &dyn Display) -> Self {
        let (path, what) = (path.to_owned(), error.to_string());
        if is_foreign {
            Self::Foreign { path, what }
        } else {
            Self::Malformed { path, what }
        }
    }

    pub(crate) fn malformed(path: &Path, what: impl Display) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            what: what.to_string(),
        }
    }

    /// An error of the Parquet reader: damage, unless the operating system failed.
    pub(crate) fn decoding_parquet(path: &Path, error: &(dyn Error + 'static)) -> Self {
        match find_io(error) {
            Some(source) => Self::cannot_read(path)(source),
            None => Self::malformed(path, format_args!("not a readable Parquet file: {error}")),
        }
    }

    /// An error of the Parquet writer.
    pub(crate) fn encoding_parquet(path: &Path, error: ParquetError) -> Self {
        Self::encoding_arrow(path, ArrowError::ExternalError(Box::new(error)))
    }

    /// An error of an Arrow writer.
    pub(crate) fn encoding_arrow(path: &Path, error: ArrowError) -> Self {
        let path = path.to_owned();
        match find_io(&error) {
            Some(source) => Self::Write { path, source },
            None => Self::Encode {
                path,
                source: error,
            },
        }
    }
}

/// The operating system's error inside `error`, if it has one that does not merely say that bytes ran out.
fn find_io(error: &(dyn Error + 'static)) -> Option<io::Error> {
    // zstd's words, of which Arrow keeps no more than the text.
    if error.to_string().ends_with("not enough memory") {
        return Some(io::ErrorKind::OutOfMemory.into());
    }
    let mut next = Some(error);
    while let Some(error) = next {
        // ArrowError and ParquetError hold theirs in boxes that `source` skips.
        let inner = match (
            error.downcast_ref::<ArrowError>(),
            error.downcast_ref::<ParquetError>(),
        ) {
            (Some(ArrowError::IoError(_, io)), _) => Some(io),
            (Some(ArrowError::ExternalError(inner)), _)
            | (_, Some(ParquetError::External(inner))) => {
                return find_io(inner.as_ref());
            }
            _ => error.downcast_ref::<io::Error>(),
        };
        if let Some(io) = inner {
            return io.raw_os_error().map(io::Error::from_raw_os_error);
        }
        next = error.source();
    }
    None
}

/// A file that is being written is opened already: that there is none means that it has gone.
fn write_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "the unfinished file, or its folder, was removed in the meantime".to_owned()
        }
        _ => io_text(error),
    }
}

/// Whether the process, or the system, may have no more files open.
fn is_out_of_files(error: &io::Error) -> bool {
    let refused = [Errno::MFILE, Errno::NFILE];
    Errno::from_io_error(error).is_some_and(|found| refused.contains(&found))
}

fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// What a message takes from a file or from a decoder, on one line.
fn whole_line(text: &dyn Display) -> String {
    one_line(&text.to_string(), usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_error_is_found_inside_boxes() {
        let full = || io::Error::from_raw_os_error(28);
        let error =
            StoreError::encoding_parquet(Path::new("x"), ParquetError::External(Box::new(full())));
        assert_eq!(error.exit(), Exit::Io);
        assert_eq!(
            error.to_string(),
            "x: cannot write: no space left on device"
        );
        let error = StoreError::encoding_arrow(Path::new("x"), ArrowError::from(full()));
        assert_eq!(error.exit(), Exit::Io);
        let error =
            StoreError::decoding_parquet(Path::new("x"), &ParquetError::EOF("short".into()));
        assert_eq!(error.exit(), Exit::Data);
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(path_text(Path::new("a\nb\t")), "a\\nb\\t");
        // Decoders say things in lines, and quote what is in the file.
        let error = StoreError::malformed(Path::new("x"), "bad\n\tworse");
        assert_eq!(error.to_string(), "x: bad\\n\\tworse");
        let found = "1\0\u{85}".into();
        let error = StoreError::metadata(Path::new("x"), &MetadataError::Contract { found });
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
}
