//! Text that is read line by line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::StoreError;
use crate::open::open_input;

/// Bytes of a line: an id of 2 MiB, the most of a FASTA header and a suffix, each byte of which may be a quote and doubled.
const LINE_BYTES: usize = 8 << 20;

/// The bytes of a text file. A line longer than the limit is an error of kind `InvalidData`, so that a reader of
/// records does not take memory without end.
pub struct Lines<R = File> {
    source: R,
    /// Bytes since the last line end.
    length: usize,
}

impl Lines {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        open_input(path).map(Self::new)
    }
}

impl<R> Lines<R> {
    fn new(source: R) -> Self {
        Self { source, length: 0 }
    }
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        for line in buffer[..count].split_inclusive(|&byte| byte == b'\n') {
            self.length += line.len();
            if self.length > LINE_BYTES {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a line has more than {LINE_BYTES} bytes"),
                ));
            }
            if line.ends_with(b"\n") {
                self.length = 0;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_be_many_and_not_long() {
        let line = [b"x".repeat(LINE_BYTES - 1), b"\n".to_vec()].concat();
        let count = io::copy(&mut Lines::new(&line.repeat(3)[..]), &mut io::sink());
        assert_eq!(count.expect("short lines"), 3 * LINE_BYTES as u64);
        let error = io::copy(&mut Lines::new(io::repeat(b'x')), &mut io::sink());
        assert_eq!(
            error.expect_err("endless").kind(),
            io::ErrorKind::InvalidData
        );
    }
}
