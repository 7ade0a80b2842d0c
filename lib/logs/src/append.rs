//! Appends complete lines.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem;
use std::path::{Path, PathBuf};

use plmkit_store::{StoreError, lock_open};

use crate::LogError;

/// A torn line is at most this long.
const MAX_TAIL: u64 = 1 << 20;

/// A kind of log, recognised by its first bytes.
pub(crate) struct LogKind {
    /// "a … log", for messages.
    pub(crate) name: &'static str,
    /// The first bytes of such a log.
    pub(crate) magic: &'static [u8],
    /// Whether only one process may write at a time. Rows of two writers could not be told apart.
    pub(crate) one_writer: bool,
}

/// A log that is open for appending. An error closes it, and later lines are dropped. A regular file of one writer stays
/// open, without the lines that were not written: a full disk may have space again.
pub(crate) struct AppendLog {
    path: PathBuf,
    file: Option<File>,
    empty: bool,
    /// The length of the complete lines, if only this process writes them.
    length: Option<u64>,
    pending: Vec<u8>,
}

impl AppendLog {
    /// Opens or creates the log at `path`, and cuts off a torn last line. A log of one writer that another process writes is
    /// [busy](plmkit_store::StoreError::Busy).
    pub(crate) fn open(path: &Path, kind: &LogKind) -> Result<Self, LogError> {
        let failed = |source| LogError::Create {
            path: path.to_owned(),
            source,
        };
        let mut file = open_file(path).map_err(failed)?;
        let is_own = kind.one_writer && is_regular(&file).map_err(failed)?;
        while is_own && !lock_open(&file, path)? {
            file = open_file(path).map_err(failed)?;
        }
        let complete = cut_torn_line(file, kind.magic).map_err(failed)?;
        let (file, length) = complete.ok_or_else(|| LogError::Foreign {
            path: path.to_owned(),
            expected: kind.name,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            empty: length == 0,
            length: is_own.then_some(length),
            pending: Vec::new(),
        })
    }

    /// Whether the log has no lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Whether lines can still be added.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Adds complete lines, including newlines, to the next flush.
    pub(crate) fn push(&mut self, lines: &[u8]) {
        if self.file.is_some() {
            self.pending.extend_from_slice(lines);
        }
    }

    /// Writes all pending lines with one system call.
    pub(crate) fn flush(&mut self) -> Result<(), LogError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = file.write_all(&self.pending);
        let lines = mem::take(&mut self.pending);
        let Err(source) = written else {
            self.empty = false;
            self.length = self.length.map(|length| length + lines.len() as u64);
            return Ok(());
        };
        // A torn line must not be in the middle of the log.
        let is_whole = self
            .length
            .is_some_and(|length| file.set_len(length).is_ok());
        if !is_whole {
            self.file = None;
        }
        Err(StoreError::cannot_write(&self.path)(source).into())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(path)
}

fn is_regular(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.is_file())
}

/// Cuts off a torn last line. Returns the file and its length; `None` if it is not a log of this kind.
fn cut_torn_line(mut file: File, magic: &[u8]) -> io::Result<Option<(File, u64)>> {
    if !is_regular(&file)? {
        return Ok(Some((file, 0)));
    }
    let mut head = Vec::new();
    (&file).take(magic.len() as u64).read_to_end(&mut head)?;
    if !magic.starts_with(&head) {
        return Ok(None);
    }
    let length = file.metadata()?.len();
    let tail_start = length.saturating_sub(MAX_TAIL);
    file.seek(SeekFrom::Start(tail_start))?;
    let mut tail = Vec::new();
    (&file).take(MAX_TAIL).read_to_end(&mut tail)?;
    let complete = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(newline) => tail_start + newline as u64 + 1,
        None if tail_start == 0 => 0,
        None => return Ok(None),
    };
    if complete < length {
        file.set_len(complete)?;
    }
    Ok(Some((file, complete)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plmkit_contract::{Exit, Failure};

    use super::*;

    const KIND: LogKind = LogKind {
        name: "a test log",
        magic: b"head\n",
        one_writer: true,
    };

    #[test]
    fn a_torn_last_line_is_cut_off_and_another_kind_of_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let endless = [b"head\n", &vec![b'A'; 3 << 20][..]].concat();
        for (before, after) in [
            (&b""[..], Some(&b"head\nnew\n"[..])),
            (b"he", Some(b"head\nnew\n")),
            (b"head\n", Some(b"head\nnew\n")),
            (b"head\nold\nto", Some(b"head\nold\nnew\n")),
            (b">P1\nMKV\n", None),
            (&endless, None),
        ] {
            fs::write(&path, before).unwrap();
            match AppendLog::open(&path, &KIND) {
                Ok(mut log) => {
                    if log.is_empty() {
                        log.push(KIND.magic);
                    }
                    log.push(b"new\n");
                    log.flush().unwrap();
                }
                Err(error) => {
                    assert_eq!(error.exit(), Exit::CannotCreate);
                    let message = error.to_string();
                    assert!(
                        message.contains("exists and is not a test log"),
                        "{message}"
                    );
                }
            }
            assert!(fs::read(&path).unwrap() == after.unwrap_or(before));
        }
    }

    #[test]
    fn a_log_of_one_writer_is_busy_until_it_is_closed_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let first = AppendLog::open(&path, &KIND).unwrap();
        let error = AppendLog::open(&path, &KIND).err().unwrap();
        assert_eq!(error.exit(), Exit::Transient);
        let shared = LogKind {
            one_writer: false,
            ..KIND
        };
        assert!(AppendLog::open(&path, &shared).is_ok());
        drop(first);
        assert!(AppendLog::open(&path, &KIND).is_ok());
    }

    #[test]
    fn an_error_is_returned_once_and_closes_the_log() {
        let mut log = AppendLog::open(Path::new("/dev/full"), &KIND).unwrap();
        log.push(b"a\n");
        assert_eq!(log.flush().unwrap_err().exit(), Exit::Io);
        log.push(b"b\n");
        assert!(log.flush().is_ok());
    }
}
