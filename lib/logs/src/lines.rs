//! Reads complete lines.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use plmkit_contract::path_text;
use serde::Serialize;

use crate::LogError;

/// The longest line of a log.
const MAX_LINE: u64 = 1 << 20;

/// The lines of a log that end with a newline.
pub struct CompleteLines<R> {
    source: R,
    number: u64,
    torn: bool,
}

impl<R: BufRead> CompleteLines<R> {
    /// Reads the lines of `source`.
    pub fn new(source: R) -> Self {
        Self {
            source,
            number: 0,
            torn: false,
        }
    }

    /// Returns the number of the last line that was read, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether a last line without a newline was left out.
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// Reads the next line, including its newline, into `line`. Returns false at the end. A line that is too long is an error
    /// of the kind `InvalidData`.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let mut source = self.source.by_ref().take(MAX_LINE);
        let length = source.read_until(b'\n', line)?;
        if line.last() == Some(&b'\n') {
            self.number += 1;
            return Ok(true);
        }
        line.clear();
        if length as u64 == MAX_LINE {
            self.number += 1;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("longer than {MAX_LINE} bytes"),
            ));
        }
        self.torn |= length > 0;
        Ok(false)
    }
}

/// Malformed lines of a log, which were left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedLines {
    /// The path of the log.
    pub path: String,
    /// Malformed lines.
    pub lines: u64,
    /// All lines.
    pub of: u64,
    /// The number of the first malformed line.
    pub first_line: u64,
    /// What is wrong with it, and what was expected.
    pub reason: String,
}

impl fmt::Display for SkippedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            lines,
            of,
            first_line,
            reason,
        } = self;
        write!(
            f,
            "{path}: {lines} of {of} lines are malformed and were left out; the first is line {first_line}: {reason}"
        )
    }
}

/// More than one malformed line, and more than one in this many: the log is damaged.
const LINES_FOR_A_BAD_ONE: u64 = 100;

/// Counts the lines of a log.
#[derive(Debug, Default)]
pub(crate) struct LineCount {
    /// Whether the file is known to be a log.
    is_log: bool,
    good: u64,
    bad: u64,
    first_bad: Option<(u64, String)>,
}

impl LineCount {
    /// Adds a header, which tells that the file is a log.
    pub(crate) fn add_header(&mut self) {
        self.is_log = true;
    }

    pub(crate) fn add_good(&mut self) {
        self.is_log = true;
        self.good += 1;
    }

    /// Adds a malformed line. Without a header or a good line before it, the file is no log, which is an error.
    pub(crate) fn add_bad(
        &mut self,
        path: &Path,
        line: u64,
        reason: String,
    ) -> Result<(), LogError> {
        if !self.is_log {
            return Err(LogError::line(path, line, reason));
        }
        self.bad += 1;
        self.first_bad.get_or_insert((line, reason));
        Ok(())
    }

    /// Returns an error about the first malformed line if there are too many at the end of the log.
    pub(crate) fn check(&mut self, path: &Path) -> Result<(), LogError> {
        let is_rare = self.bad <= 1 || self.bad * LINES_FOR_A_BAD_ONE <= self.good + self.bad;
        if self.bad == 0 || is_rare && self.good > 0 {
            return Ok(());
        }
        // Reported once.
        let (all, bad) = (self.good + self.bad, std::mem::take(&mut self.bad));
        let (line, reason) = self.first_bad.take().unwrap_or_default();
        let reason = format!(
            "{reason}; {bad} of {all} lines are malformed, more than one in {LINES_FOR_A_BAD_ONE}"
        );
        Err(LogError::line(path, line, reason))
    }

    pub(crate) fn skipped(&self, path: &Path) -> Option<SkippedLines> {
        let (first_line, reason) = self.first_bad.clone()?;
        Some(SkippedLines {
            path: path_text(path),
            lines: self.bad,
            of: self.good + self.bad,
            first_line,
            reason,
        })
    }
}

/// Reads a log line by line, and counts its malformed lines.
pub(crate) struct LogReader<R> {
    lines: CompleteLines<R>,
    line: Vec<u8>,
    count: LineCount,
    path: PathBuf,
}

impl<R: BufRead> LogReader<R> {
    pub(crate) fn new(source: R, path: PathBuf) -> Self {
        Self {
            lines: CompleteLines::new(source),
            line: Vec::new(),
            count: LineCount::default(),
            path,
        }
    }

    pub(crate) fn torn(&self) -> bool {
        self.lines.torn()
    }

    pub(crate) fn skipped(&self) -> Option<SkippedLines> {
        self.count.skipped(&self.path)
    }

    /// Reads the first line, and parses it.
    pub(crate) fn read_header<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, LogError> {
        if !self.read_line()? {
            return Ok(None);
        }
        let header = parse(&self.line);
        let header = header.map_err(|reason| LogError::line(&self.path, 1, reason))?;
        self.count.add_header();
        Ok(Some(header))
    }

    /// Reads up to the next line that holds an item, and returns that. A line may be sound and hold none. At the end of a
    /// damaged log, returns an error about its first malformed line.
    pub(crate) fn read_item<T>(
        &mut self,
        mut parse: impl FnMut(&[u8]) -> Result<Option<T>, String>,
    ) -> Result<Option<T>, LogError> {
        while self.read_line()? {
            match parse(&self.line) {
                Ok(item) => {
                    self.count.add_good();
                    if item.is_some() {
                        return Ok(item);
                    }
                }
                Err(reason) => {
                    let line = self.lines.number();
                    self.count.add_bad(&self.path, line, reason)?;
                }
            }
        }
        self.count.check(&self.path)?;
        Ok(None)
    }

    /// Reads the next line that is not blank. Returns false at the end.
    fn read_line(&mut self) -> Result<bool, LogError> {
        loop {
            let read = self.lines.read_line(&mut self.line);
            let number = self.lines.number();
            let read = read.map_err(|error| LogError::read(&self.path, number, error))?;
            if !read || !self.line.trim_ascii().is_empty() {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_without_a_newline_is_left_out() {
        for (text, complete, torn) in [
            ("", "", false),
            ("a\nbb\n", "a\nbb\n", false),
            ("a\nbb", "a\n", true),
            ("bb", "", true),
        ] {
            let mut lines = CompleteLines::new(text.as_bytes());
            let (mut found, mut line) = (Vec::new(), Vec::new());
            while lines.read_line(&mut line).unwrap() {
                found.extend_from_slice(&line);
            }
            assert_eq!(
                (found.as_slice(), lines.torn()),
                (complete.as_bytes(), torn)
            );
        }
    }

    #[test]
    fn one_line_or_one_in_a_hundred_may_be_bad_but_not_the_first() {
        let path = Path::new("log");
        let bad = |count: &mut LineCount, line| count.add_bad(path, line, "torn".to_owned());
        let mut count = LineCount::default();
        assert!(bad(&mut count, 1).is_err());
        count.add_good();
        bad(&mut count, 50).unwrap();
        count.check(path).unwrap();
        (0..196).for_each(|_| count.add_good());
        bad(&mut count, 51).unwrap();
        assert_eq!(
            count.check(path).unwrap_err().to_string(),
            "log: line 50: torn; 2 of 199 lines are malformed, more than one in 100"
        );
        let mut header_alone = LineCount::default();
        header_alone.add_header();
        bad(&mut header_alone, 2).unwrap();
        assert!(header_alone.check(path).is_err());
        let mut count = LineCount::default();
        (0..198).for_each(|_| count.add_good());
        bad(&mut count, 50).unwrap();
        bad(&mut count, 60).unwrap();
        count.check(path).unwrap();
        let skipped = count.skipped(path).unwrap().to_string();
        assert_eq!(
            skipped,
            "log: 2 of 200 lines are malformed and were left out; the first is line 50: torn"
        );
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let mut lines = CompleteLines::new(io::BufReader::new(io::repeat(b'x')));
        let error = lines.read_line(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(lines.number(), 1);
    }
}
