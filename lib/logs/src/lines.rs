//! Reading whole lines.

use std::io::{self, BufRead, Read};

/// No line of a log is longer.
const MAX_LINE: u64 = 1 << 20;

/// The lines of a log that end with a newline.
pub struct CompleteLines<R> {
    source: R,
    number: u64,
    torn: bool,
}

impl<R: BufRead> CompleteLines<R> {
    /// The lines of `source`.
    pub fn new(source: R) -> Self {
        Self {
            source,
            number: 0,
            torn: false,
        }
    }

    /// The number of the line read last, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether a last line without its newline was left out.
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// Reads the next line, newline included, into `line`; false at the end. A line without an end is an error of invalid data.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let length = self
            .source
            .by_ref()
            .take(MAX_LINE)
            .read_until(b'\n', line)?;
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

    fn whole(text: &[u8]) -> (Vec<u8>, bool) {
        let mut source = LineRead::new(text);
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).unwrap();
        (bytes, source.lines().torn())
    }

    #[test]
    fn a_last_line_without_its_newline_is_left_out_and_said() {
        assert_eq!(whole(b""), (b"".to_vec(), false));
        assert_eq!(whole(b"a\nbb\n"), (b"a\nbb\n".to_vec(), false));
        assert_eq!(whole(b"a\nbb"), (b"a\n".to_vec(), true));
        assert_eq!(whole(b"bb"), (b"".to_vec(), true));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_the_memory() {
        let mut lines = CompleteLines::new(io::BufReader::new(io::repeat(b'x')));
        let error = lines.read_line(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(lines.number(), 1);
    }
}
