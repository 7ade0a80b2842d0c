//! Appends complete lines.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plmkit_store::{StoreError, lock_open};

/// A torn line is at most this long.
const MAX_TAIL: u64 = 1 << 20;

/// A log that is open for appending. An error closes it, and later lines are dropped. A regular file of one writer stays
/// open, without the lines that were not written: a full disk may have space again.
pub(crate) struct AppendLog {
    path: PathBuf,
    file: Option<File>,
    /// The length of the complete lines, as far as they are known here.
    length: u64,
    /// Whether only this process writes it.
    is_own: bool,
}

impl AppendLog {
    /// Opens or creates the log at `path`, and cuts off a torn last line. Another kind of file does not begin with `magic`; `name` is "a …
    /// log", for messages. With `one_writer`, rows of two writers could not be told apart: a log that another process writes is
    /// [busy](plmkit_store::StoreError::Busy).
    pub(crate) fn open(
        path: &Path,
        name: &str,
        magic: &[u8],
        one_writer: bool,
    ) -> Result<Self, StoreError> {
        let failed = StoreError::cannot_create(path);
        let mut file = open_file(path).map_err(failed)?;
        let is_own = one_writer && is_regular(&file).map_err(failed)?;
        while is_own && !lock_open(&file, path)? {
            file = open_file(path).map_err(failed)?;
        }
        let complete = cut_torn_line(file, magic).map_err(failed)?;
        let (file, length) = complete.ok_or_else(|| {
            let what = format!("exists and is not {name}: choose another path or remove it");
            failed(io::Error::other(what))
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            length,
            is_own,
        })
    }

    /// Whether the log has no lines.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether lines can still be added.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Writes complete lines, including newlines, with one system call.
    pub(crate) fn write(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        // Where locks do not exclude.
        if self.is_own && file.metadata().is_ok_and(|found| found.len() > self.length) {
            self.file = None;
            return Err(StoreError::busy(&self.path));
        }
        let Err(source) = file.write_all(lines) else {
            self.length += lines.len() as u64;
            return Ok(());
        };
        // A torn line must not be in the middle of the log.
        if !self.is_own || file.set_len(self.length).is_err() {
            self.file = None;
        }
        Err(StoreError::cannot_write(&self.path)(source))
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

    use plmkit_kit::{Exit, Failure};

    use super::*;

    const MAGIC: &[u8] = b"head\n";

    fn open(path: &Path, one_writer: bool) -> Result<AppendLog, StoreError> {
        AppendLog::open(path, "a test log", MAGIC, one_writer)
    }

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
            match open(&path, true) {
                Ok(mut log) => {
                    if log.is_empty() {
                        log.write(MAGIC).unwrap();
                    }
                    log.write(b"new\n").unwrap();
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
        let first = open(&path, true).unwrap();
        let error = open(&path, true).err().unwrap();
        assert_eq!(error.exit(), Exit::Transient);
        assert!(open(&path, false).is_ok());
        drop(first);
        assert!(open(&path, true).is_ok());
    }

    #[test]
    fn a_log_of_one_writer_that_another_one_writes_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = open(&path, true).unwrap();
        log.write(MAGIC).unwrap();
        // Where locks exclude nobody.
        fs::write(&path, b"head\nother\n").unwrap();
        assert_eq!(log.write(b"own\n").unwrap_err().exit(), Exit::Transient);
        assert!(!log.is_open());
        assert_eq!(fs::read(&path).unwrap(), b"head\nother\n");
    }

    #[test]
    fn an_error_is_returned_once_and_closes_the_log() {
        let mut log = open(Path::new("/dev/full"), true).unwrap();
        assert_eq!(log.write(b"a\n").unwrap_err().exit(), Exit::Io);
        assert!(log.write(b"b\n").is_ok());
    }
}
