//! One event log, read as it grows.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::SystemTime;

use plmkit_logs::event::{EVENT_MAGIC, Event, parse_event};
use plmkit_logs::{CompleteLines, LogError, Timestamp};

/// What is compared to see that the beginning of a file is still the one that was read.
const HEAD_BYTES: u64 = 256;

/// A log, and how far it was read.
#[derive(Debug)]
pub(super) struct LogTail {
    path: PathBuf,
    /// Of the file when it was looked at last.
    seen: Option<FileState>,
    /// Its first bytes, at most [`HEAD_BYTES`] of those that were read.
    head: Vec<u8>,
    /// The end of the last complete line that was read.
    offset: u64,
    /// Lines read.
    lines: u64,
    kind: Kind,
    /// Whether a bad line was warned of.
    warned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Too short to tell.
    Unknown,
    Events,
    Other,
}

/// What reading a log found out.
#[derive(Debug, Default)]
pub(super) struct TailUpdate {
    /// There is more to be read than the limit allowed.
    pub(super) behind: bool,
    /// The first bad line of the file.
    pub(super) bad_line: Option<String>,
}

impl LogTail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            seen: None,
            head: Vec::new(),
            offset: 0,
            lines: 0,
            kind: Kind::Unknown,
            warned: false,
        }
    }

    /// Whether the file is there and is something else than an event log.
    pub(super) fn is_other(&self) -> bool {
        self.kind == Kind::Other
    }

    /// Reads the complete lines that are new, up to about `limit` bytes, and gives each event on, with the time at
    /// which the file was written last. A file that was cut or replaced is read from its beginning.
    pub(super) fn read(
        &mut self,
        limit: u64,
        mut take: impl FnMut(Event, Timestamp),
    ) -> io::Result<TailUpdate> {
        let found = fs::metadata(&self.path)?;
        if !found.is_file() {
            // Reading from a pipe could wait for ever.
            self.kind = Kind::Other;
            return Ok(TailUpdate::default());
        }
        if self.seen == Some(FileState::new(&found)) && !self.is_behind() {
            return Ok(TailUpdate::default());
        }
        let mut file = File::open(&self.path)?;
        let found = file.metadata()?;
        let now = FileState::new(&found);
        if self.is_another(now, &mut file)? {
            *self = Self::new(self.path.clone());
        }
        self.seen = Some(now);
        if self.kind == Kind::Unknown {
            self.kind = kind_of(&mut file)?;
        }
        if self.kind != Kind::Events {
            return Ok(TailUpdate::default());
        }

        let written = found
            .modified()
            .unwrap_or_else(|_| SystemTime::now())
            .into();
        let update = self.read_lines(&mut file, limit, |event| take(event, written))?;
        self.head.clear();
        file.seek(SeekFrom::Start(0))?;
        (&file)
            .take(HEAD_BYTES.min(self.offset))
            .read_to_end(&mut self.head)?;
        Ok(update)
    }

    fn read_lines(
        &mut self,
        file: &mut File,
        limit: u64,
        mut take: impl FnMut(Event),
    ) -> io::Result<TailUpdate> {
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = CompleteLines::new(BufReader::with_capacity(1 << 16, file));
        let mut line = Vec::new();
        let mut update = TailUpdate::default();
        let end = self.offset.saturating_add(limit);
        loop {
            match lines.read_line(&mut line) {
                Ok(true) => {}
                Ok(false) => return Ok(update),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    // A line without an end: this is no log after all.
                    self.kind = Kind::Other;
                    update.bad_line = Some(self.bad_line(self.lines + 1, error.to_string()));
                    return Ok(update);
                }
                Err(error) => return Err(error),
            }
            self.offset += line.len() as u64;
            self.lines += 1;
            let text = line.trim_ascii_end();
            if text.is_empty() {
                continue;
            }
            match parse_event(text) {
                Ok(event) => event.into_iter().for_each(&mut take),
                Err(_) if self.warned => {}
                Err(reason) => {
                    self.warned = true;
                    update.bad_line = Some(format!(
                        "{}; such lines are left out",
                        self.bad_line(self.lines, reason)
                    ));
                }
            }
            if self.offset >= end {
                update.behind = self.is_behind();
                return Ok(update);
            }
        }
    }

    fn bad_line(&self, line: u64, reason: String) -> String {
        LogError::Line {
            path: self.path.clone(),
            line,
            reason,
        }
        .to_string()
    }

    /// Whether a limit left something unread; a torn last line looks the same and is looked at again.
    fn is_behind(&self) -> bool {
        self.kind == Kind::Events && self.seen.is_some_and(|seen| self.offset < seen.bytes)
    }

    /// Whether this is not what was read so far.
    fn is_another(&self, now: FileState, file: &mut File) -> io::Result<bool> {
        let Some(before) = self.seen else {
            return Ok(false);
        };
        if (now.device, now.inode) != (before.device, before.inode)
            || now.bytes < self.offset
            || (self.kind == Kind::Other && now.bytes < before.bytes)
        {
            return Ok(true);
        }
        let mut head = Vec::new();
        file.take(self.head.len() as u64).read_to_end(&mut head)?;
        Ok(head != self.head)
    }
}

impl FileState {
    fn new(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

fn kind_of(file: &mut File) -> io::Result<Kind> {
    let mut first = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(HEAD_BYTES).read_to_end(&mut first)?;
    // Other writers of JSON put spaces between.
    first.retain(|byte| !byte.is_ascii_whitespace());
    Ok(if first.starts_with(EVENT_MAGIC) {
        Kind::Events
    } else if EVENT_MAGIC.starts_with(&first) {
        Kind::Unknown
    } else {
        Kind::Other
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn batch(number: u64) -> String {
        format!(
            "{{\"type\":\"batch\",\"run\":\"r\",\"batch\":{number},\"sequences\":1,\"tokens\":4,\"residues\":2}}\n"
        )
    }

    struct Case {
        folder: tempfile::TempDir,
        tail: LogTail,
    }

    impl Case {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let tail = LogTail::new(folder.path().join("events.jsonl"));
            Self { folder, tail }
        }

        fn append(&self, text: &str) {
            let mut file = File::options()
                .create(true)
                .append(true)
                .open(&self.tail.path)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn replace(&self, text: &str) {
            let fresh = self.folder.path().join("fresh");
            fs::write(&fresh, text).unwrap();
            fs::rename(fresh, &self.tail.path).unwrap();
        }

        /// The numbers of the batches that are new, and what was said.
        fn read(&mut self, limit: u64) -> (Vec<u64>, TailUpdate) {
            let mut numbers = Vec::new();
            let update = self
                .tail
                .read(limit, |event, _| match event {
                    Event::Batch(batch) => numbers.push(batch.batch),
                    other => panic!("{other:?}"),
                })
                .unwrap();
            (numbers, update)
        }

        fn numbers(&mut self) -> Vec<u64> {
            self.read(u64::MAX).0
        }
    }

    #[test]
    fn a_log_with_spaces_is_a_log() {
        let mut case = Case::new();
        case.append(&batch(7).replace("\":", "\": "));
        assert_eq!(case.read(u64::MAX).0, [7]);
    }

    #[test]
    fn only_complete_lines_are_read_and_each_once() {
        let mut case = Case::new();
        assert!(case.tail.read(9, |_, _| ()).is_err(), "not there yet");
        case.append("{\"ty");
        assert!(case.numbers().is_empty(), "too short to tell what it is");
        let line = batch(0);
        case.append(&line["{\"ty".len()..line.len() - 4]);
        assert!(case.numbers().is_empty());
        case.append(&line[line.len() - 4..]);
        assert_eq!(case.numbers(), [0]);
        assert!(case.numbers().is_empty());
        case.append(&(batch(1) + &batch(2)));
        assert_eq!(case.numbers(), [1, 2]);
    }

    #[test]
    fn a_file_that_was_cut_replaced_or_written_again_is_read_from_its_beginning() {
        let mut case = Case::new();
        case.append(&(batch(0) + &batch(1)));
        assert_eq!(case.numbers(), [0, 1]);
        fs::write(&case.tail.path, batch(2)).unwrap();
        assert_eq!(case.numbers(), [2], "cut");
        case.replace(&(batch(3) + &batch(4) + &batch(5)));
        assert_eq!(case.numbers(), [3, 4, 5], "another file");
        fs::write(&case.tail.path, (6..16).map(batch).collect::<String>()).unwrap();
        assert_eq!(
            case.numbers(),
            (6..16).collect::<Vec<_>>(),
            "the same file, longer and other"
        );
    }

    #[test]
    fn a_long_log_is_read_a_part_at_a_time() {
        let mut case = Case::new();
        case.append(&(0..3).map(batch).collect::<String>());
        let (numbers, update) = case.read(1);
        assert_eq!((numbers, update.behind), (vec![0], true));
        let (numbers, update) = case.read(batch(0).len() as u64 + 1);
        assert_eq!((numbers, update.behind), (vec![1, 2], false));
    }

    #[test]
    fn bad_lines_are_left_out_and_told_of_once() {
        let mut case = Case::new();
        case.append(&format!(
            "{}\n{{\"type\":7}}\n[]\n{}",
            batch(0).trim(),
            batch(1)
        ));
        let (numbers, update) = case.read(u64::MAX);
        assert_eq!(numbers, [0, 1]);
        let said = update.bad_line.unwrap();
        assert!(
            said.contains("events.jsonl: line 2: not a run event")
                && said.ends_with("; such lines are left out"),
            "{said}"
        );
        case.append("[]\n");
        assert!(case.read(u64::MAX).1.bad_line.is_none());
    }

    #[test]
    fn another_kind_of_file_is_left_alone_until_it_is_replaced() {
        let mut case = Case::new();
        case.append("{\"level\":\"info\"}\n");
        assert!(case.numbers().is_empty() && case.tail.is_other());
        case.append(&batch(0));
        assert!(case.numbers().is_empty() && case.tail.is_other());
        case.replace(&batch(1));
        assert_eq!(case.numbers(), [1]);
        assert!(!case.tail.is_other());
    }

    #[test]
    fn a_line_without_an_end_is_no_log() {
        let mut case = Case::new();
        case.append(&(batch(0) + &"x".repeat(2 << 20)));
        let (numbers, update) = case.read(u64::MAX);
        assert_eq!(numbers, [0]);
        assert!(update.bad_line.unwrap().contains("line 2: longer than"));
        assert!(case.tail.is_other());
    }
}
