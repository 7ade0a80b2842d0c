//! Reads logs, line by line.

use std::fmt;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use plmkit_contract::{one_line, path_text};
use plmkit_store::StoreError;
use serde::Serialize;

use crate::Timestamp;

/// The longest line of a log.
const MAX_LINE: usize = 1 << 20;

/// More than one malformed line, and one in this many or more: the log is damaged.
const LINES_FOR_A_BAD_ONE: u64 = 10;

/// How the lines of a kind of log are parsed.
pub trait LineParser: Default {
    /// What a line holds.
    type Item;

    /// Parses a line, which is not blank, without its newline. Returns `None` for a sound line without an item. The error has no file and line.
    fn parse(&mut self, line: &[u8]) -> Result<Option<Self::Item>, String>;

    /// Returns the time of day of an item.
    fn time(item: &Self::Item) -> Option<Timestamp>;
}

/// The items of a log, in the order of the lines. Keeps one line in memory.
///
/// A line is complete once its newline is written. The iterator ends before an incomplete line, and goes on when the log has
/// grown. Malformed lines are left out: see [`finish`](Self::finish). If the first line is malformed, the file is no log, which is
/// an error.
pub struct LogReader<R, P> {
    source: R,
    path: PathBuf,
    parser: P,
    /// The last line; at the end of the log, what there is of an incomplete one.
    line: Vec<u8>,
    /// The number of complete lines that were read.
    number: u64,
    items: u64,
    /// Whether the file is known to be a log: it has a sound line.
    is_log: bool,
    skipped: Option<SkippedLines>,
}

impl<R: BufRead, P: LineParser> LogReader<R, P> {
    /// Reads a log from `source`; `path` names it in errors.
    pub fn new(source: R, path: impl AsRef<Path>) -> Self {
        Self {
            source,
            path: path.as_ref().to_owned(),
            parser: P::default(),
            line: Vec::new(),
            number: 0,
            items: 0,
            is_log: false,
            skipped: None,
        }
    }

    /// Returns the source. Another one goes on where it ended, also within a line.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Returns the malformed lines so far.
    pub fn malformed(&self) -> Option<SkippedLines> {
        let skipped = self.skipped.clone()?;
        Some(SkippedLines {
            of: self.items + skipped.lines,
            ..skipped
        })
    }

    /// Returns the lines that were left out of a log that was read to its end: malformed ones, and an incomplete last line. Two or
    /// more malformed lines that are one in ten, or more, are an error about the first of them.
    pub fn finish(mut self) -> Result<Option<SkippedLines>, StoreError> {
        if let Some(found) = self.malformed() {
            let (bad, all) = (found.lines, found.of);
            let is_rare = bad <= 1 || bad * LINES_FOR_A_BAD_ONE < all;
            if !is_rare || self.items == 0 {
                let reason = format!(
                    "{}; {bad} of {all} lines are malformed, one in {LINES_FOR_A_BAD_ONE} or more",
                    found.reason
                );
                return Err(malformed(&self.path, found.first_line, reason));
            }
        }
        if self.line.last().is_some_and(|&last| last != b'\n') {
            self.number += 1;
            self.leave_out("it is torn, as of a writer that was killed".to_owned());
        }
        Ok(self.malformed())
    }

    fn advance(&mut self) -> Result<Option<P::Item>, StoreError> {
        while self.read_line()? {
            let line = self.line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            match self.parser.parse(line) {
                Ok(item) => {
                    self.is_log = true;
                    if item.is_some() {
                        self.items += 1;
                        return Ok(item);
                    }
                }
                Err(reason) if self.is_log => self.leave_out(reason),
                Err(reason) => return Err(malformed(&self.path, self.number, reason)),
            }
        }
        Ok(None)
    }

    fn leave_out(&mut self, reason: String) {
        let skipped = self.skipped.get_or_insert_with(|| SkippedLines {
            path: path_text(&self.path),
            lines: 0,
            of: 0,
            first_line: self.number,
            reason,
        });
        skipped.lines += 1;
    }

    /// Reads the next line, including its newline. Returns false at the end.
    fn read_line(&mut self) -> Result<bool, StoreError> {
        if self.line.last() == Some(&b'\n') {
            self.line.clear();
        }
        let room = (MAX_LINE - self.line.len()) as u64;
        let mut source = self.source.by_ref().take(room);
        let read = source.read_until(b'\n', &mut self.line);
        read.map_err(StoreError::cannot_read(&self.path))?;
        let is_complete = self.line.last() == Some(&b'\n');
        if !is_complete && self.line.len() == MAX_LINE {
            let reason = format!("longer than {MAX_LINE} bytes");
            return Err(malformed(&self.path, self.number + 1, reason));
        }
        self.number += u64::from(is_complete);
        Ok(is_complete)
    }
}

impl<R: BufRead, P: LineParser> Iterator for LogReader<R, P> {
    type Item = Result<P::Item, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// The length of a reason in a message. A reason may quote the log.
const REASON_CHARS: usize = 200;

/// Returns the error of a malformed line.
fn malformed(path: &Path, line: u64, reason: impl AsRef<str>) -> StoreError {
    let reason = one_line(reason.as_ref(), REASON_CHARS);
    StoreError::malformed(path, format_args!("line {line}: {reason}"))
}

/// Lines of a log that were left out.
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

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Lines are sound, but for `-`, and hold themselves, but for `header`.
    #[derive(Default)]
    struct Lines;

    impl LineParser for Lines {
        type Item = Vec<u8>;

        fn parse(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, String> {
            match line {
                b"-" => Err("torn".to_owned()),
                b"header" => Ok(None),
                line => Ok(Some([line, b"\n"].concat())),
            }
        }

        fn time(_: &Vec<u8>) -> Option<Timestamp> {
            None
        }
    }

    /// The items of a log, and what was left out.
    fn read(log: &str) -> Result<(String, Option<String>), String> {
        let mut reader = LogReader::<_, Lines>::new(log.as_bytes(), "log");
        let items: Result<Vec<_>, _> = reader.by_ref().collect();
        let items = items.map_err(|error| error.to_string())?.concat();
        let skipped = reader.finish().map_err(|error| error.to_string())?;
        let skipped = skipped.map(|skipped| skipped.to_string());
        Ok((String::from_utf8(items).unwrap(), skipped))
    }

    #[test]
    fn one_line_or_less_than_one_in_ten_may_be_bad_but_not_the_first() {
        let good = |count| "a\n".repeat(count);
        let skipped = |log: &str| read(log).map(|(_, skipped)| skipped);
        assert!(read(&format!("-\n{}", good(300))).is_err());
        assert_eq!(skipped(&good(3)), Ok(None));
        let one = "log: 1 of 2 lines are malformed and were left out; the first is line 2: torn";
        assert_eq!(skipped("a\n-\n"), Ok(Some(one.to_owned())));
        assert!(read("header\n-\n").is_err());
        let two = |after| format!("{}-\n-\n{}", good(9), good(after));
        let left_out =
            "log: 2 of 21 lines are malformed and were left out; the first is line 10: torn";
        assert_eq!(skipped(&two(10)), Ok(Some(left_out.to_owned())));
        let error = "log: line 10: torn; 2 of 20 lines are malformed, one in 10 or more";
        assert_eq!(skipped(&two(9)), Err(error.to_owned()));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let endless = io::BufReader::new(io::repeat(b'x'));
        let mut reader = LogReader::<_, Lines>::new(endless, "log");
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "log: line 1: longer than 1048576 bytes");
    }
}
