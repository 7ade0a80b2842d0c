//! Sources of FASTA bytes.

use std::fs::File;
use std::io::{self, Read};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use memchr::memchr;
use plmkit_contract::content_digest;
use plmkit_kit::{Stop, check_fetched};
use plmkit_store::StoreError;

use crate::compression::{Compression, MAGIC_LEN};
use crate::error::ShardError;
use crate::input::{not_a_folder, shown};

/// The size of reads.
const CHUNK: usize = 1 << 18;

/// The most chunks that wait. The thread that takes them may be busy for as long as it takes to encode a row group.
const WAITING: usize = 32;

/// The interval of polls for a stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Some bytes of a stream.
struct Chunk {
    buffer: Vec<u8>,
    /// How many bytes of the buffer were read.
    len: usize,
    compression: Compression,
}

/// The decompressed bytes of an input, counted and digested on reading. A thread reads and decompresses them: a read may block
/// forever, and so may opening a FIFO. Every wait ends with [`StoreError::Stopped`] once a stop is requested.
pub struct Source {
    input: PathBuf,
    stop: Stop,
    chunks: Receiver<Result<Chunk, ShardError>>,
    /// Takes the buffers of consumed chunks back.
    used: Sender<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
    /// The current chunk, and how many of its bytes were consumed.
    chunk: Chunk,
    consumed: usize,
    bytes: u64,
    hasher: blake3::Hasher,
}

impl Source {
    /// Opens an input and detects its compression.
    pub fn open(input: &Path, stop: &Stop) -> Result<Self, ShardError> {
        let path = input.to_owned();
        Self::new(input, move || open_stream(&path), stop)
    }

    /// Reads what `open` opens as the bytes of `input`. The thread ends with the stream or with the process.
    pub(crate) fn new<R: Read + Send + 'static>(
        input: &Path,
        open: impl FnOnce() -> io::Result<R> + Send + 'static,
        stop: &Stop,
    ) -> Result<Self, ShardError> {
        let (sender, chunks) = sync_channel(WAITING);
        let (used, buffers) = channel();
        let named = input.to_owned();
        let reader = thread::Builder::new().spawn(move || {
            if let Err(error) = send_all(&named, open, &sender, &buffers) {
                // The receiver may be gone.
                let _ = sender.send(Err(error));
            }
        })?;
        let mut source = Self {
            input: input.to_owned(),
            stop: stop.clone(),
            chunks,
            used,
            reader: Some(reader),
            chunk: Chunk {
                buffer: Vec::new(),
                len: 0,
                compression: Compression::Plain,
            },
            consumed: 0,
            bytes: 0,
            hasher: blake3::Hasher::new(),
        };
        // The first chunk is empty and means that the stream is open.
        source.next()?;
        Ok(source)
    }

    /// Waits for the next chunk. Returns false at the end.
    fn next(&mut self) -> Result<bool, ShardError> {
        loop {
            StoreError::check(&self.stop)?;
            match self.chunks.recv_timeout(PATIENCE) {
                Ok(chunk) => {
                    let consumed = std::mem::replace(&mut self.chunk, chunk?);
                    // The thread ends before the last chunks are consumed.
                    let _ = self.used.send(consumed.buffer);
                    self.consumed = 0;
                    let bytes = &self.chunk.buffer[..self.chunk.len];
                    self.hasher.update(bytes);
                    self.bytes += bytes.len() as u64;
                    return Ok(true);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // A panic of the thread is no end of the input.
                    if let Some(Err(panic)) = self.reader.take().map(JoinHandle::join) {
                        resume_unwind(panic);
                    }
                    return Ok(false);
                }
            }
        }
    }

    /// Returns the input.
    pub(crate) fn input(&self) -> &Path {
        &self.input
    }

    /// Whether the input is compressed, so that damage or truncation can be detected.
    pub(crate) fn is_compressed(&self) -> bool {
        self.chunk.compression != Compression::Plain
    }

    /// How many bytes of text were read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// Returns some of the next bytes; none at the end.
    pub(crate) fn peek(&mut self) -> Result<&[u8], ShardError> {
        while self.consumed == self.chunk.len && self.next()? {}
        Ok(&self.chunk.buffer[self.consumed..self.chunk.len])
    }

    /// Consumes `count` of the bytes of [`peek`](Self::peek).
    pub(crate) fn consume(&mut self, count: usize) {
        self.consumed += count;
    }

    /// Reads into `text` until it has `until` bytes. Returns false if the input ends before that.
    pub fn fill(&mut self, text: &mut Vec<u8>, until: usize) -> Result<bool, ShardError> {
        while text.len() < until {
            let bytes = self.peek()?;
            let count = bytes.len().min(until - text.len());
            if count == 0 {
                return Ok(false);
            }
            text.extend_from_slice(&bytes[..count]);
            self.consume(count);
        }
        Ok(true)
    }

    /// Appends the next line, with its end. Returns false at the end of the input.
    pub fn read_line(&mut self, line: &mut Vec<u8>) -> Result<bool, ShardError> {
        loop {
            let bytes = self.peek()?;
            let end = memchr(b'\n', bytes);
            let count = end.map_or(bytes.len(), |end| end + 1);
            line.extend_from_slice(&bytes[..count]);
            self.consume(count);
            if end.is_some() || count == 0 {
                return Ok(!line.is_empty());
            }
        }
    }

    /// Skips some bytes. Returns false at the end.
    pub(crate) fn skip(&mut self) -> Result<bool, ShardError> {
        self.consumed = self.chunk.len;
        self.next()
    }

    /// Reads the rest and returns the digest and the number of all bytes.
    pub(crate) fn finish(mut self) -> Result<(String, u64), ShardError> {
        while self.skip()? {}
        Ok((content_digest(self.hasher.finalize()), self.bytes))
    }
}

/// Sends the decompressed bytes of a stream, until the receiver is gone.
fn send_all<R: Read + Send + 'static>(
    input: &Path,
    open: impl FnOnce() -> io::Result<R>,
    sender: &SyncSender<Result<Chunk, ShardError>>,
    buffers: &Receiver<Vec<u8>>,
) -> Result<(), ShardError> {
    let mut stream = Retrying(open().map_err(StoreError::cannot_open(shown(input)))?);
    let mut magic = Vec::with_capacity(MAGIC_LEN);
    let mut first = stream.by_ref().take(MAGIC_LEN as u64);
    let read = first.read_to_end(&mut magic);
    read.map_err(|error| ShardError::from_stream(input, Compression::Plain, &error))?;
    let compression = Compression::detect(&magic);
    let failed = |error| ShardError::from_stream(input, compression, &error);
    if magic.is_empty() {
        let expected = Compression::from_name(&input.to_string_lossy());
        if expected != Compression::Plain {
            let cut = io::ErrorKind::UnexpectedEof.into();
            return Err(ShardError::from_stream(input, expected, &cut));
        }
    }
    if let Compression::Unsupported(found) = compression {
        let what = format_args!("expected plain, gzip, bgzip or zstd, found {found}");
        return Err(StoreError::malformed(shown(input), what).into());
    }
    let stream = io::Cursor::new(magic).chain(stream);
    let mut stream = compression.decode(stream, input).map_err(failed)?;
    let (mut buffer, mut len) = (Vec::new(), 0);
    loop {
        let chunk = Chunk {
            buffer,
            len,
            compression,
        };
        if sender.send(Ok(chunk)).is_err() {
            return Ok(());
        }
        buffer = buffers.try_recv().unwrap_or_default();
        buffer.resize(CHUNK, 0);
        len = stream.read(&mut buffer).map_err(failed)?;
        if len == 0 {
            return Ok(());
        }
    }
}

fn open_stream(input: &Path) -> io::Result<Box<dyn Read + Send>> {
    if input == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let metadata = input.metadata()?;
    not_a_folder(&metadata)?;
    let file = File::open(input)?;
    if metadata.is_file() {
        check_fetched(&file)?;
    }
    Ok(Box::new(file))
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
