//! Appending whole lines.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use plmkit_store::{StoreError, lock_open};

use crate::LogError;

/// A torn line lies within this many bytes of the end.
const MAX_TAIL: u64 = 1 << 20;

/// A kind of log, known by how it begins.
pub(crate) struct LogKind {
    /// "a … log", for messages.
    pub(crate) name: &'static str,
    /// The first bytes of each such log.
    pub(crate) magic: &'static [u8],
    /// Whether one process at a time writes it: rows of two would be taken for those of one.
    pub(crate) one_writer: bool,
}

/// A log open for appending. After the first error it is closed: what comes later is dropped, silently.
pub(crate) struct AppendLog {
    path: PathBuf,
    file: Option<File>,
    empty: bool,
    pending: Vec<u8>,
}

impl AppendLog {
    /// Opens the log at `path`, or makes an empty one; cuts off a torn last line. A log of one writer that another process
    /// is writing is [busy](plmkit_store::StoreError::Busy).
    pub(crate) fn open(path: &Path, kind: &LogKind) -> Result<Self, LogError> {
        let failed = |source| LogError::Create {
            path: path.to_owned(),
            source,
        };
        let mut file = open_file(path).map_err(failed)?;
        while kind.one_writer && is_regular(&file).map_err(failed)? && !lock_open(&file, path)? {
            file = open_file(path).map_err(failed)?;
        }
        let (file, length) =
            whole(file, kind.magic)
                .map_err(failed)?
                .ok_or_else(|| LogError::Foreign {
                    path: path.to_owned(),
                    expected: kind.name,
                })?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            empty: length == 0,
            pending: Vec::new(),
        })
    }

    /// Whether nothing was written to it yet, now or earlier.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Takes whole lines, newlines included, for the next flush.
    pub(crate) fn push(&mut self, lines: &[u8]) {
        if self.file.is_some() {
            self.pending.extend_from_slice(lines);
        }
    }

    /// Hands all pending lines to the system in one write.
    pub(crate) fn flush(&mut self) -> Result<(), LogError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.pending.is_empty() {
            return Ok(());
        }
        let written = file.write_all(&self.pending);
        self.pending.clear();
        self.empty = false;
        written.map_err(|source| {
            self.file = None;
            let path = self.path.clone();
            StoreError::Write { path, source }.into()
        })
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

/// The file and the length of its complete lines; `None` where it is not a log of this kind.
fn whole(mut file: File, magic: &[u8]) -> io::Result<Option<(File, u64)>> {
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
    let whole = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(newline) => tail_start + newline as u64 + 1,
        None if tail_start == 0 => 0,
        None => return Ok(None),
    };
    if whole < length {
        file.set_len(whole)?;
    }
    Ok(Some((file, whole)))
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

    fn append_to(before: &[u8]) -> Result<Vec<u8>, LogError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, before).unwrap();
        let mut log = AppendLog::open(&path, &KIND)?;
        if log.is_empty() {
            log.push(KIND.magic);
        }
        log.push(b"new\n");
        log.flush()?;
        Ok(fs::read(&path).unwrap())
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_whole_lines_stay() {
        assert_eq!(append_to(b"").unwrap(), b"head\nnew\n");
        assert_eq!(append_to(b"he").unwrap(), b"head\nnew\n");
        assert_eq!(append_to(b"head\n").unwrap(), b"head\nnew\n");
        assert_eq!(append_to(b"head\nold\nto").unwrap(), b"head\nold\nnew\n");
    }

    #[test]
    fn a_file_of_another_kind_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proteins.fasta");
        let mut long = b"head\n".to_vec();
        long.resize(3 << 20, b'A');
        for content in [b">P1\nMKV".to_vec(), long] {
            fs::write(&path, &content).unwrap();
            let error = AppendLog::open(&path, &KIND).err().unwrap();
            assert_eq!(error.exit(), Exit::CannotCreate);
            assert!(
                error.to_string().contains("exists and is not a test log"),
                "{error}"
            );
            assert_eq!(fs::read(&path).unwrap(), content);
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
    fn an_error_is_told_once_and_then_the_log_is_closed() {
        let mut log = AppendLog::open(Path::new("/dev/full"), &KIND).unwrap();
        log.push(b"a\n");
        assert_eq!(log.flush().unwrap_err().exit(), Exit::Io);
        log.push(b"b\n");
        assert!(log.flush().is_ok());
    }
}
