//! What a library writes, on its way into a file with checksums.

use std::io::{self, Write};

use crate::checksums::{Checksums, Format};

/// Adds up checksums of what is written. The end of the file is kept back, for the block that goes into it.
pub(crate) struct Summed<W> {
    inner: W,
    sums: Checksums,
    end: Option<Vec<u8>>,
}

impl<W: Write> Summed<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self {
            inner,
            sums: Checksums::default(),
            end: None,
        }
    }

    pub(crate) fn inner(&self) -> &W {
        &self.inner
    }

    pub(crate) fn inner_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// What comes next can be read without what is before it.
    pub(crate) fn cut(&mut self) {
        self.sums.cut();
    }

    /// What comes next is the end of the file.
    pub(crate) fn begin_end(&mut self) {
        self.end = Some(Vec::new());
    }

    /// Writes the end of the file.
    pub(crate) fn finish(mut self, format: Format) -> io::Result<W> {
        let end = self.sums.seal(format, &self.end.unwrap_or_default());
        self.inner.write_all(&end)?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(end) = &mut self.end {
            return end.write(bytes);
        }
        let count = self.inner.write(bytes)?;
        self.sums.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
