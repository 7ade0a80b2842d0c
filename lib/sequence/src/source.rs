//! Sources of FASTA bytes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use plmkit_contract::{Stop, check_fetched, content_digest};

use crate::compression::{Compression, MAGIC_LEN};
use crate::error::ShardError;
use crate::input::{Input, not_a_folder};
use crate::pipe::Pipe;

/// The size of the buffer. Larger reads, such as those of blocks, pass it by.
const BUFFER: usize = 1 << 16;

/// The decompressed bytes of an input, counted and digested on reading.
///
/// Errors are [`ShardError`]s inside an [`io::Error`].
pub struct Source(BufReader<Digested>);

/// A stream whose bytes are counted and digested.
struct Digested {
    input: Input,
    compression: Compression,
    stream: Box<dyn Read + Send>,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Read for Digested {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(to).map_err(|error| {
            let error = ShardError::from_stream(&self.input, self.compression, error);
            io::Error::other(error)
        })?;
        self.hasher.update(&to[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

impl Source {
    /// Opens an input and detects its compression. A pipe ends once a stop is requested.
    pub fn open(input: &Input, stop: &Stop) -> Result<Self, ShardError> {
        let stream = open_stream(input, stop);
        let stream = stream.map_err(|source| ShardError::Open(input.clone(), source))?;
        Self::new(input, stream, BUFFER, stop)
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
        let digested = Digested {
            input: input.clone(),
            compression,
            stream,
            bytes: 0,
            hasher: blake3::Hasher::new(),
        };
        Ok(Self(BufReader::with_capacity(buffer, digested)))
    }

    /// Returns the input.
    pub(crate) fn input(&self) -> &Input {
        &self.0.get_ref().input
    }

    /// Whether the input is compressed, so that damage or truncation can be detected.
    pub(crate) fn is_compressed(&self) -> bool {
        self.0.get_ref().compression != Compression::Plain
    }

    /// How many bytes of text were read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.0.get_ref().bytes
    }

    /// Reads into `text` until it has `until` bytes. Returns false if the input ends before that.
    pub(crate) fn fill(&mut self, text: &mut Vec<u8>, until: usize) -> io::Result<bool> {
        let mut end = text.len();
        text.resize(until.max(end), 0);
        while end < until {
            match self.read(&mut text[end..])? {
                0 => break,
                count => end += count,
            }
        }
        text.truncate(end);
        Ok(end >= until)
    }

    /// Reads the rest and returns the digest and the number of all bytes.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        while self.skip()? {}
        let digested = self.0.get_ref();
        Ok((content_digest(digested.hasher.finalize()), digested.bytes))
    }

    /// Reads the rest and returns the digest of all bytes, or `None` after a stop.
    pub(crate) fn digest(mut self, stop: &Stop) -> Result<Option<String>, ShardError> {
        while !stop.requested() {
            if !self.skip().map_err(inner_error)? && !stop.requested() {
                return Ok(Some(content_digest(self.0.get_ref().hasher.finalize())));
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

fn open_stream(input: &Input, stop: &Stop) -> io::Result<Box<dyn Read + Send>> {
    let Input::File(path) = input else {
        return Ok(Box::new(Pipe::open(|| Ok(io::stdin()), stop)?));
    };
    let metadata = path.metadata()?;
    not_a_folder(&metadata)?;
    if metadata.is_file() {
        let file = File::open(path)?;
        check_fetched(&file)?;
        return Ok(Box::new(file));
    }
    let path = path.clone();
    Ok(Box::new(Pipe::open(move || File::open(path), stop)?))
}

/// Returns the [`ShardError`] inside an error of a [`Source`].
pub(crate) fn inner_error(error: io::Error) -> ShardError {
    error
        .downcast()
        .expect("a source fails with an error of this crate")
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.0.consume(count);
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
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
