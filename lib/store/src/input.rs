//! Opening and digesting inputs, and removing files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use plmkit_contract::ByteDigest;
use plmkit_kit::{check_fetched, check_regular};

use crate::StoreError;

/// The most bytes of a line: an id of 2 MiB (the longest FASTA header with a suffix) in which every byte is a doubled quote.
const LINE_BYTES: usize = 8 << 20;

/// The most bytes of a text that is read as a whole: a table of a million lines, or a manifest of a million shards.
const TEXT_BYTES: u64 = 256 << 20;

/// Reads a regular file as a whole, which must have at most 256 MiB.
pub fn read_input(path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut text = Vec::new();
    let read = open_input(path)?
        .take(TEXT_BYTES + 1)
        .read_to_end(&mut text);
    read.map_err(StoreError::cannot_read(path))?;
    if text.len() as u64 > TEXT_BYTES {
        let what = format_args!("expected at most {TEXT_BYTES} bytes");
        return Err(StoreError::malformed(path, what));
    }
    Ok(text)
}

/// Opens a regular file for random access.
pub fn open_input(path: &Path) -> Result<File, StoreError> {
    let found = path.metadata().and_then(|found| check_regular(&found));
    let opened = found.and_then(|()| File::open(path));
    let fetched = opened.and_then(|file| check_fetched(&file).map(|()| file));
    fetched.map_err(StoreError::cannot_open(path))
}

/// Computes the [`ByteDigest`] of the file at `path`.
pub fn read_byte_digest(path: &Path) -> Result<String, StoreError> {
    let mut digest = ByteDigest::default();
    let copied = io::copy(&mut open_input(path)?, &mut digest);
    copied.map_err(StoreError::cannot_read(path))?;
    Ok(digest.to_string())
}

/// Removes the file at `path` if there is one.
pub fn remove_file(path: &Path) -> Result<(), StoreError> {
    remove_if_exists(path).map_err(StoreError::cannot_write(path))
}

pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Whether there is nothing at `path`. A link to nothing is something: what it leads to is lost.
pub fn is_absent(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The bytes of a text file. A line above 8 MiB is an error of kind `InvalidData`, which bounds the memory of a reader of
/// records.
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
                let what = format!("a line has more than {LINE_BYTES} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
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
