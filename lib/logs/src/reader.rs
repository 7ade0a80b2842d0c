//! Reads logs, line by line.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use plmkit_kit::one_line;
use plmkit_store::StoreError;

use crate::Timestamp;

/// The longest line of a log.
const MAX_LINE: usize = 1 << 20;

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
/// grown. A malformed complete line is an error, which names its number.
pub struct LogReader<R, P> {
    source: R,
    path: PathBuf,
    parser: P,
    /// The last line; at the end of the log, what there is of an incomplete one.
    line: Vec<u8>,
    /// The number of complete lines that were read.
    number: u64,
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
        }
    }

    /// Returns the source. Another one goes on where it ended, also within a line.
    pub fn source_mut(&mut self) -> &mut R {
        &mut self.source
    }

    /// Whether a log that was read to its end ends within a line, as of a writer that was killed.
    pub fn is_torn(&self) -> bool {
        self.line.last().is_some_and(|&last| last != b'\n')
    }

    fn advance(&mut self) -> Result<Option<P::Item>, StoreError> {
        while self.read_line()? {
            let line = self.line.trim_ascii_end();
            if line.is_empty() {
                continue;
            }
            let item = self.parser.parse(line);
            let item = item.map_err(|reason| malformed(&self.path, self.number, reason))?;
            if item.is_some() {
                return Ok(item);
            }
        }
        Ok(None)
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

    /// The items of a log, and whether its last line is torn.
    fn read(log: &str) -> Result<(String, bool), String> {
        let mut reader = LogReader::<_, Lines>::new(log.as_bytes(), "log");
        let items: Result<Vec<_>, _> = reader.by_ref().collect();
        let items = items.map_err(|error| error.to_string())?.concat();
        Ok((String::from_utf8(items).unwrap(), reader.is_torn()))
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_any_other_bad_line_is_an_error() {
        assert_eq!(read("header\na\n\nb\n"), Ok(("a\nb\n".to_owned(), false)));
        assert_eq!(read("a\n-"), Ok(("a\n".to_owned(), true)));
        let error = |line| Err(format!("log: line {line}: torn"));
        assert_eq!(read("-\na\n"), error(1));
        assert_eq!(read(&("a\n".repeat(300) + "-\na\n")), error(301));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let endless = io::BufReader::new(io::repeat(b'x'));
        let mut reader = LogReader::<_, Lines>::new(endless, "log");
        let error = reader.next().unwrap().unwrap_err().to_string();
        assert_eq!(error, "log: line 1: longer than 1048576 bytes");
    }
}
