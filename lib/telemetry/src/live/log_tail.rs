//! One event log, read as it grows.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::mem;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::SystemTime;

use plmkit_logs::event::{EVENT_MAGIC, Event, parse_event};
use plmkit_logs::{CompleteLines, LogError, Timestamp};

/// A log, and the position up to which it was read.
#[derive(Debug, Default)]
pub(super) struct LogTail {
    path: PathBuf,
    /// Device and inode of the file.
    file_id: Option<(u64, u64)>,
    /// The end of the last complete line that was read.
    offset: u64,
    /// Lines that were read.
    lines: u64,
    /// Whether a bad line was reported.
    warned: bool,
}

/// Bytes that tell whether a file is a log.
const HEAD_BYTES: usize = 256;

impl LogTail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// Reads new complete lines. Calls `add` for each event, with the time of the last write to the file. A file that is another
    /// than before, or shorter, is read from its beginning. Returns a message about the first bad line of the file. A file that is
    /// no event log is an error of the kind `InvalidData`.
    pub(super) fn read(
        &mut self,
        mut add: impl FnMut(Event, Timestamp),
    ) -> io::Result<Option<String>> {
        let metadata = fs::metadata(&self.path)?;
        let other = || io::Error::new(io::ErrorKind::InvalidData, "not a run event log");
        if !metadata.is_file() {
            // Opening a pipe could wait forever.
            return Err(other());
        }
        let id = (metadata.dev(), metadata.ino());
        if self.file_id != Some(id) || metadata.len() < self.offset {
            *self = Self::new(mem::take(&mut self.path));
            self.file_id = Some(id);
        }
        if metadata.len() == self.offset {
            return Ok(None);
        }
        let mut file = File::open(&self.path)?;
        if self.offset == 0 {
            let mut head = vec![0; HEAD_BYTES];
            let read = file.read_at(&mut head, 0)?;
            head.truncate(read);
            // Other writers of JSON put spaces between tokens.
            head.retain(|byte| !byte.is_ascii_whitespace());
            if EVENT_MAGIC.starts_with(&head) {
                // Too short to tell.
                return Ok(None);
            }
            if !head.starts_with(EVENT_MAGIC) {
                return Err(other());
            }
        }
        let written = metadata.modified().unwrap_or_else(|_| SystemTime::now());
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = CompleteLines::new(BufReader::with_capacity(1 << 16, file));
        let (mut line, mut bad_line) = (Vec::new(), None);
        while lines.read_line(&mut line)? {
            self.offset += line.len() as u64;
            self.lines += 1;
            match parse_event(&line) {
                Ok(event) => event
                    .into_iter()
                    .for_each(|event| add(event, written.into())),
                Err(reason) if !self.warned => {
                    self.warned = true;
                    let error = LogError::line(&self.path, self.lines, reason);
                    bad_line = Some(format!("{error}; such lines are left out"));
                }
                Err(_) => {}
            }
        }
        Ok(bad_line)
    }
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
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let tail = LogTail::new(folder.path().join("events.jsonl"));
            let case = Self { folder, tail };
            case.append(text);
            case
        }

        fn append(&self, text: &str) {
            let mut options = File::options();
            let file = options.create(true).append(true).open(&self.tail.path);
            file.unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn replace(&self, text: &str) {
            let fresh = self.folder.path().join("fresh");
            fs::write(&fresh, text).unwrap();
            fs::rename(fresh, &self.tail.path).unwrap();
        }

        /// The numbers of the new batches, and the outcome.
        fn read(&mut self) -> (Vec<u64>, io::Result<Option<String>>) {
            let mut numbers = Vec::new();
            let outcome = self.tail.read(|event, _| match event {
                Event::Batch(batch) => numbers.push(batch.batch),
                other => panic!("{other:?}"),
            });
            (numbers, outcome)
        }

        fn numbers(&mut self) -> Vec<u64> {
            self.read().0
        }
    }

    #[test]
    fn only_complete_lines_are_read_and_each_once() {
        let mut case = Case::new("{\"ty");
        assert!(case.numbers().is_empty(), "too short to tell its kind");
        let line = batch(0);
        case.append(&line["{\"ty".len()..line.len() - 4]);
        assert!(case.numbers().is_empty());
        case.append(&line[line.len() - 4..]);
        assert_eq!(case.numbers(), [0]);
        assert!(case.numbers().is_empty());
        case.append(&(batch(1) + &batch(2).replace("\":", "\": ")));
        assert_eq!(case.numbers(), [1, 2]);
    }

    #[test]
    fn a_truncated_or_replaced_file_is_read_from_its_beginning() {
        let mut case = Case::new(&(batch(0) + &batch(1)));
        assert_eq!(case.numbers(), [0, 1]);
        fs::write(&case.tail.path, batch(2)).unwrap();
        assert_eq!(case.numbers(), [2], "truncated");
        case.replace(&(batch(3) + &batch(4) + &batch(5)));
        assert_eq!(case.numbers(), [3, 4, 5], "another file");
    }

    #[test]
    fn bad_lines_are_skipped_and_reported_once() {
        let lines = format!("{}\n{{\"type\":7}}\n[]\n{}", batch(0).trim(), batch(1));
        let mut case = Case::new(&lines);
        let (numbers, outcome) = case.read();
        assert_eq!(numbers, [0, 1]);
        let message = outcome.unwrap().unwrap();
        assert!(
            message.contains("events.jsonl: line 2: not a run event"),
            "{message}"
        );
        assert!(message.ends_with("; such lines are left out"), "{message}");
        case.append("[]\n");
        assert!(case.read().1.unwrap().is_none());
    }

    #[test]
    fn another_kind_of_file_is_ignored_until_it_is_replaced() {
        let mut case = Case::new("{\"level\":\"info\"}\n");
        for _ in 0..2 {
            let (numbers, outcome) = case.read();
            assert!(numbers.is_empty() && outcome.is_err());
            case.append(&batch(0));
        }
        case.replace(&batch(1));
        let (numbers, outcome) = case.read();
        assert_eq!((numbers, outcome.is_ok()), (vec![1], true));
    }

    #[test]
    fn a_line_without_an_end_is_no_log() {
        let mut case = Case::new(&(batch(0) + &"x".repeat(2 << 20)));
        let (numbers, outcome) = case.read();
        assert_eq!(numbers, [0]);
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
