//! Errors of reading and writing files.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use plmkit_contract::ContentError;
use plmkit_kit::{Exit, Failure, Stop, io_text, one_line, path_text};

/// Why a file could not be read or written. Every message but the last starts with the path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An input is missing or cannot be opened.
    #[error("{}: cannot open: {}", path_text(.path), io_text(.source))]
    Open { path: PathBuf, source: io::Error },
    /// An output cannot be created.
    #[error("{}: cannot create: {}", path_text(.path), io_text(.source))]
    Create { path: PathBuf, source: io::Error },
    /// Reading failed.
    #[error("{}: cannot read: {}", path_text(.path), io_text(.source))]
    Read { path: PathBuf, source: io::Error },
    /// Writing failed. Nothing was published.
    #[error("{}: cannot write: {}", path_text(.path), write_text(.source))]
    Write { path: PathBuf, source: io::Error },
    /// The file is damaged, or does not follow its format: what was expected and what was found.
    #[error("{}: {}", path_text(.path), on_one_line(.what))]
    Malformed { path: PathBuf, what: String },
    /// The file may be intact, but has another kind, program or contract version: what was expected and what was found.
    #[error("{}: {}", path_text(.path), on_one_line(.what))]
    Foreign { path: PathBuf, what: String },
    /// The output exists and is the result of other work, with a first difference.
    #[error("{}: exists and holds other work ({}); --force replaces it", path_text(.path), on_one_line(.difference))]
    Exists { path: PathBuf, difference: String },
    /// The output exists, and nothing says that it may be replaced.
    #[error("{}: exists; --force writes it again", path_text(.path))]
    Written { path: PathBuf },
    /// Another process is writing the output.
    #[error("{}: another process is writing it", path_text(.path))]
    Busy { path: PathBuf },
    /// Arrow or Parquet cannot encode the rows.
    #[error("{}: cannot encode: {source}", path_text(.path))]
    Encode { path: PathBuf, source: ArrowError },
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
}

impl Failure for StoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { .. } => Exit::NoInput,
            Self::Create { .. } | Self::Exists { .. } | Self::Written { .. } => Exit::CannotCreate,
            Self::Read { .. } | Self::Write { .. } => Exit::Io,
            Self::Busy { .. } | Self::Stopped => Exit::Transient,
            Self::Malformed { .. } | Self::Foreign { .. } => Exit::Data,
            Self::Encode { .. } => Exit::Internal,
        }
    }
}

impl StoreError {
    /// Turns the error of reading an existing output into the error of writing it: a file of another kind is other work, and a
    /// damaged file can be replaced.
    #[must_use]
    pub fn of_existing(self) -> Self {
        match self {
            // A folder or a device is in the way, or the file cannot be examined.
            Self::Open { path, source } if source.kind() != io::ErrorKind::NotFound => {
                Self::Create { path, source }
            }
            Self::Foreign { path, what } => Self::Exists {
                path,
                difference: what,
            },
            Self::Malformed { path, what } => {
                Self::malformed(&path, what + "; --force replaces it")
            }
            other => other,
        }
    }

    /// Returns [`Stopped`](Self::Stopped) if a stop was requested.
    pub fn check(stop: &Stop) -> Result<(), Self> {
        if stop.requested() {
            return Err(Self::Stopped);
        }
        Ok(())
    }

    /// Returns a function that makes the error of an input at `path` that cannot be opened.
    pub fn cannot_open(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Open {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns a function that makes the error of an output at `path` that cannot be created. The system has no good word for a link to
    /// nothing: there is no file, and a folder "exists".
    pub fn cannot_create(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Create {
            path: path.to_owned(),
            source: if path.is_symlink() && !path.exists() {
                io::Error::other("it is a link to a file or folder that does not exist")
            } else {
                source
            },
        }
    }

    /// Returns a function that makes the error of a file at `path` that cannot be read.
    pub fn cannot_read(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns a function that makes the error of a file at `path` that cannot be written.
    pub fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Write {
            path: path.to_owned(),
            source,
        }
    }

    /// Makes the error of an output at `path` that is the result of other work.
    pub fn exists(path: &Path, difference: impl Into<String>) -> Self {
        let (path, difference) = (path.to_owned(), difference.into());
        Self::Exists { path, difference }
    }

    /// Another process is writing the file or folder at `path`.
    pub fn busy(path: &Path) -> Self {
        let path = path.to_owned();
        Self::Busy { path }
    }

    /// Makes the error of a file at `path` that is damaged or does not follow its format.
    pub fn malformed(path: &Path, what: impl Display) -> Self {
        let (path, what) = (path.to_owned(), what.to_string());
        Self::Malformed { path, what }
    }

    /// The error of bytes that do not match their checksum.
    pub(crate) fn damaged(path: &Path, bytes: &Range<u64>) -> Self {
        let Range { start, end } = bytes;
        let what = format_args!("damaged: bytes {start} to {end} are not as they were written");
        Self::malformed(path, what)
    }

    pub(crate) fn content(path: &Path, error: ContentError) -> Self {
        let path = path.to_owned();
        match error {
            ContentError::Foreign(what) => Self::Foreign { path, what },
            ContentError::Malformed(what) => Self::Malformed { path, what },
        }
    }

    /// An error of the Parquet reader: the file is damaged, unless the system failed.
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
    pub(crate) fn encoding_arrow(path: &Path, source: ArrowError) -> Self {
        let path = path.to_owned();
        match find_io(&source) {
            Some(source) => Self::Write { path, source },
            None => Self::Encode { path, source },
        }
    }
}

/// Finds the system's error in the sources of `error`. A custom `io::Error`, such as an unexpected end, does not count.
fn find_io(error: &(dyn Error + 'static)) -> Option<io::Error> {
    // Arrow keeps only the text of zstd's error.
    if error.to_string().ends_with("not enough memory") {
        return Some(io::ErrorKind::OutOfMemory.into());
    }
    let mut next = Some(error);
    while let Some(error) = next {
        // `source` skips the boxed errors of ArrowError and ParquetError.
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

/// A file that is being written was opened before: `NotFound` means that it was removed since.
fn write_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "the unfinished file, or its folder, was removed in the meantime".to_owned()
        }
        _ => io_text(error),
    }
}

/// Formats text from a file or a decoder on one line.
fn on_one_line(text: &str) -> String {
    one_line(text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use plmkit_kit::exit_of;

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
    fn a_file_that_is_cut_while_it_is_read_is_bad_data() {
        let mut file = tempfile::NamedTempFile::new().expect("temp file");
        file.write_all(b"five.").expect("write");
        let read = crate::verified::append(file.as_file(), 0..6, &mut Vec::new());
        let error = StoreError::cannot_read(Path::new("x"))(read.expect_err("it is cut"));
        assert_eq!(exit_of(&error), Exit::Data);
        assert_eq!(error.to_string(), "x: cannot read: it was cut short");
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(path_text(Path::new("a\nb\t")), "a\\nb\\t");
        // Decoders' messages have several lines and quote the file.
        let error = StoreError::malformed(Path::new("x"), "bad\n\tworse");
        assert_eq!(error.to_string(), "x: bad\\n\\tworse");
        let found = ContentError::Foreign("1\0\u{85}".to_owned());
        let error = StoreError::content(Path::new("x"), found);
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
}
