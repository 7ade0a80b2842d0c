//! Sources of FASTA bytes.

use std::fs::File;
use std::io::{self, BufRead, Read};

use plmkit_contract::{Stop, check_fetched, content_digest};

use crate::compression::{Compression, MAGIC_LEN};
use crate::error::ShardError;
use crate::input::{Input, not_a_folder};
use crate::pipe::Pipe;

/// The size of reads of decompressed bytes.
const BUFFER: usize = 1 << 18;

/// The decompressed bytes of an input, counted and digested on reading.
///
/// Errors are [`ShardError`]s inside an [`io::Error`].
pub struct Source {
    input: Input,
    compression: Compression,
    stream: Box<dyn Read + Send>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Source {
    /// Opens an input and detects its compression. A pipe ends once a stop is requested.
    pub fn open(input: &Input, stop: &Stop) -> Result<Self, ShardError> {
        let failed = |source| ShardError::Open(input.clone(), source);
        match input {
            Input::Stdin => {
                let pipe = Pipe::open(|| Ok(io::stdin()), stop).map_err(failed)?;
                Self::new(input, pipe, BUFFER, stop)
            }
            Input::File(path) => {
                let metadata = path.metadata().map_err(failed)?;
                not_a_folder(&metadata).map_err(failed)?;
                if metadata.is_file() {
                    let file = File::open(path).map_err(failed)?;
                    check_fetched(&file).map_err(failed)?;
                    Self::new(input, file, BUFFER, stop)
                } else {
                    let path = path.clone();
                    let pipe = Pipe::open(move || File::open(path), stop).map_err(failed)?;
                    Self::new(input, pipe, BUFFER, stop)
                }
            }
        }
    }

    /// Reads `stream` as the bytes of `input`, with a buffer of `buffer` bytes. A thread decompresses.
    pub(crate) fn new<R: Read + Send + 'static>(
        input: &Input,
        stream: R,
        buffer: usize,
        stop: &Stop,
    ) -> Result<Self, ShardError> {
        let mut stream = Retrying(stream);
        let mut magic = Vec::with_capacity(MAGIC_LEN);
        stream
            .by_ref()
            .take(MAGIC_LEN as u64)
            .read_to_end(&mut magic)
            .map_err(|error| ShardError::from_stream(input, Compression::Plain, error))?;
        let compression = match Compression::detect(&magic) {
            Compression::Plain if magic.is_empty() => {
                let compression = Compression::from_name(&input.name());
                if compression != Compression::Plain {
                    return Err(ShardError::Truncated(input.clone(), compression));
                }
                compression
            }
            compression => compression,
        };
        if let Compression::Unsupported(_) = compression {
            return Err(ShardError::Unsupported(input.clone(), compression));
        }
        let stream = io::Cursor::new(magic).chain(stream);
        let stream: Box<dyn Read + Send> = if compression == Compression::Plain {
            Box::new(stream)
        } else {
            let named = input.clone();
            let pipe = Pipe::open(move || compression.decode(stream, named), stop);
            Box::new(pipe.map_err(|error| ShardError::from_stream(input, compression, error))?)
        };
        Ok(Self {
            input: input.clone(),
            compression,
            stream,
            buffer: vec![0; buffer].into_boxed_slice(),
            start: 0,
            end: 0,
            bytes: 0,
            hasher: blake3::Hasher::new(),
        })
    }

    /// Returns the input.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Whether the input is compressed, so that damage or truncation can be detected.
    pub(crate) fn is_compressed(&self) -> bool {
        self.compression != Compression::Plain
    }

    /// How many bytes of text were read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Reads into `text` until it has `until` bytes. Returns false if the input ends before that.
    pub(crate) fn fill(&mut self, text: &mut Vec<u8>, until: usize) -> io::Result<bool> {
        let mut end = text.len();
        text.resize(until.max(end), 0);
        while end < until {
            let count = if self.start < self.end {
                self.read(&mut text[end..])
            } else {
                self.read_stream(&mut text[end..])
            };
            match count {
                Ok(0) => break,
                Ok(count) => end += count,
                Err(error) => return Err(error),
            }
        }
        text.truncate(end);
        Ok(end >= until)
    }

    /// Reads from the stream, whatever is in the buffer.
    fn read_stream(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(to).map_err(|error| {
            io::Error::other(ShardError::from_stream(
                &self.input,
                self.compression,
                error,
            ))
        })?;
        self.hasher.update(&to[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    /// Reads the rest and returns the digest and the number of all bytes.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        while self.skip()? {}
        Ok((content_digest(self.hasher.finalize()), self.bytes))
    }

    /// Reads the rest and returns the digest of all bytes, or `None` after a stop.
    pub(crate) fn digest(mut self, stop: &Stop) -> Result<Option<String>, ShardError> {
        while !stop.requested() {
            if !self.skip().map_err(inner_error)? && !stop.requested() {
                return Ok(Some(content_digest(self.hasher.finalize())));
            }
        }
        Ok(None)
    }

    /// Consumes some bytes. Returns false at the end.
    pub(crate) fn skip(&mut self) -> io::Result<bool> {
        let count = self.fill_buf()?.len();
        self.consume(count);
        Ok(count > 0)
    }
}

/// Returns the [`ShardError`] inside an error of a [`Source`].
pub(crate) fn inner_error(error: io::Error) -> ShardError {
    error
        .downcast()
        .expect("a source fails with an error of this crate")
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            let mut buffer = std::mem::take(&mut self.buffer);
            let count = self.read_stream(&mut buffer);
            self.buffer = buffer;
            let count = count?;
            (self.start, self.end) = (0, count);
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

/// Repeats interrupted reads: some decoders would treat the error as the end.
struct Retrying<R>(R);

impl<R: Read> Read for Retrying<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

#[cfg(test)]
mod tests;
