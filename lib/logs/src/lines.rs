//! Reads complete lines.

use std::io::{self, BufRead, Read};

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

/// The bytes of the complete lines.
pub(crate) struct LineRead<R> {
    lines: CompleteLines<R>,
    line: Vec<u8>,
    taken: usize,
}

impl<R: BufRead> LineRead<R> {
    pub(crate) fn new(source: R) -> Self {
        Self {
            lines: CompleteLines::new(source),
            line: Vec::new(),
            taken: 0,
        }
    }

    pub(crate) fn lines(&self) -> &CompleteLines<R> {
        &self.lines
    }
}

impl<R: BufRead> Read for LineRead<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.line.len() {
            self.taken = 0;
            if !self.lines.read_line(&mut self.line)? {
                return Ok(0);
            }
        }
        let count = (&self.line[self.taken..]).read(out)?;
        self.taken += count;
        Ok(count)
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
            let mut source = LineRead::new(text.as_bytes());
            let found = io::read_to_string(&mut source).unwrap();
            assert_eq!((found.as_str(), source.lines().torn()), (complete, torn));
        }
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let mut lines = CompleteLines::new(io::BufReader::new(io::repeat(b'x')));
        let error = lines.read_line(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(lines.number(), 1);
    }
}
