//! Bytes that are digested on their way.

use std::io::{self, Read, Write};

use plmkit_contract::ByteDigest;

/// Digests what is read from or written to the stream inside.
pub(crate) struct Digested<S> {
    pub(crate) stream: S,
    pub(crate) digest: ByteDigest,
}

impl<S> Digested<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            digest: ByteDigest::default(),
        }
    }
}

impl<R: Read> Read for Digested<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Digested<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
