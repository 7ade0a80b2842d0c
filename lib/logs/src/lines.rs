//! Reads complete lines.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::PathBuf;

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
        let (path, lines, of, first) = (&self.path, self.lines, self.of, self.first_line);
        write!(
            f,
            "{path}: {lines} of {of} lines are malformed and were left out; the first is line {first}: {}",
            self.reason
        )
    }
}

/// More than one malformed line, and one in this many or more: the log is damaged.
const LINES_FOR_A_BAD_ONE: u64 = 10;

/// Reads a log line by line, and counts its malformed lines.
pub(crate) struct LogReader<R> {
    lines: CompleteLines<R>,
    line: Vec<u8>,
    path: PathBuf,
    /// Whether the file is known to be a log: it has a header or a sound line.
    is_log: bool,
    good: u64,
    skipped: Option<SkippedLines>,
}

impl<R: BufRead> LogReader<R> {
    pub(crate) fn new(source: R, path: PathBuf) -> Self {
        Self {
            lines: CompleteLines::new(source),
            line: Vec::new(),
            path,
            is_log: false,
            good: 0,
            skipped: None,
        }
    }

    pub(crate) fn torn(&self) -> bool {
        self.lines.torn()
    }

    pub(crate) fn skipped(&self) -> Option<SkippedLines> {
        let skipped = self.skipped.clone()?;
        let of = self.good + skipped.lines;
        Some(SkippedLines { of, ..skipped })
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
        self.is_log = true;
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
                    self.is_log = true;
                    self.good += 1;
                    if item.is_some() {
                        return Ok(item);
                    }
                }
                Err(reason) => self.skip(reason)?,
            }
        }
        self.check()?;
        Ok(None)
    }

    /// Leaves out a malformed line. Without a header or a sound line before it, the file is no log, which is an error.
    fn skip(&mut self, reason: String) -> Result<(), LogError> {
        let line = self.lines.number();
        if !self.is_log {
            return Err(LogError::line(&self.path, line, reason));
        }
        let first = || SkippedLines {
            path: path_text(&self.path),
            lines: 0,
            of: 0,
            first_line: line,
            reason,
        };
        self.skipped.get_or_insert_with(first).lines += 1;
        Ok(())
    }

    /// Returns an error about the first malformed line if there are too many at the end of the log.
    fn check(&mut self) -> Result<(), LogError> {
        let Some(skipped) = self.skipped() else {
            return Ok(());
        };
        let (bad, all) = (skipped.lines, skipped.of);
        let is_rare = bad <= 1 || bad * LINES_FOR_A_BAD_ONE < all;
        if is_rare && self.good > 0 {
            return Ok(());
        }
        // Reported once.
        self.skipped = None;
        let reason = format!(
            "{}; {bad} of {all} lines are malformed, one in {LINES_FOR_A_BAD_ONE} or more",
            skipped.reason
        );
        Err(LogError::line(&self.path, skipped.first_line, reason))
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

    /// Reads a log of sound lines, `-` for a malformed one, after a header if it `has_header`.
    fn read(log: &str, has_header: bool) -> Result<Option<String>, String> {
        let mut log = LogReader::new(log.as_bytes(), "log".into());
        if has_header {
            log.read_header(|_| Ok(())).unwrap();
        }
        let parse = |line: &[u8]| match line {
            b"-\n" => Err("torn".to_owned()),
            _ => Ok(None::<()>),
        };
        let read = log.read_item(parse).map_err(|error| error.to_string());
        assert!(log.read_item(parse).unwrap().is_none(), "reported once");
        read.map(|_| log.skipped().map(|skipped| skipped.to_string()))
    }

    #[test]
    fn one_line_or_less_than_one_in_ten_may_be_bad_but_not_the_first() {
        let good = |count| "a\n".repeat(count);
        assert!(read(&format!("-\n{}", good(300)), false).is_err());
        assert_eq!(read(&good(3), false), Ok(None));
        let one = "log: 1 of 2 lines are malformed and were left out; the first is line 2: torn";
        assert_eq!(read("a\n-\n", false), Ok(Some(one.to_owned())));
        assert!(read("header\n-\n", true).is_err());
        let two = |after| format!("{}-\n-\n{}", good(9), good(after));
        let left_out =
            "log: 2 of 21 lines are malformed and were left out; the first is line 10: torn";
        assert_eq!(read(&two(10), false), Ok(Some(left_out.to_owned())));
        let many = two(9);
        let error = "log: line 10: torn; 2 of 20 lines are malformed, one in 10 or more";
        assert_eq!(read(&many, false), Err(error.to_owned()));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let mut lines = CompleteLines::new(io::BufReader::new(io::repeat(b'x')));
        let error = lines.read_line(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(lines.number(), 1);
    }
}
