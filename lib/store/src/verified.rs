//! Files whose every byte is verified before it is used.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use plmkit_contract::Stop;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use crate::StoreError;
use crate::checksums::{End, Format, Segment};
use crate::open::open_input;

/// Segments that are kept in memory. The columns of a row group are read in turns, and pages do not end where segments do.
const RECENT: usize = 16;

/// A file with checksums, read segment by segment.
///
/// A segment is read into memory, and verified there: what changes in the file afterwards, and a file that becomes shorter,
/// changes nothing that is in use, and is found where it is read next. For the Parquet reader it is a `ChunkReader`.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    source: Source,
    segments: Vec<Segment>,
    /// Where each segment begins, and where the last one ends.
    starts: Vec<u64>,
    /// Whether each segment has been verified.
    is_verified: Vec<AtomicBool>,
    recent: Mutex<VecDeque<(usize, Bytes)>>,
    /// The footer and what is behind it.
    footer: Bytes,
    /// The last error that a decoder got, which it passes on as text.
    failure: Mutex<Option<StoreError>>,
}

/// A file, or the beginning of one whose end is elsewhere.
#[derive(Debug)]
struct Source {
    file: File,
    /// Bytes of the whole.
    len: u64,
    end: Bytes,
}

impl Source {
    /// Appends the bytes in `range` to `bytes`.
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        match range.start.checked_sub(self.len - self.end.len() as u64) {
            Some(at) => {
                let length = (range.end - range.start) as usize;
                bytes.extend_from_slice(&self.end[at as usize..][..length]);
                Ok(())
            }
            None => append(&self.file, range, bytes),
        }
    }
}

impl VerifiedFile {
    /// Opens a file and verifies its end.
    pub(crate) fn open(path: &Path, format: Format) -> Result<Self, StoreError> {
        let file = open_input(path)?;
        let unread = StoreError::cannot_read(path);
        let len = file.metadata().map_err(unread)?.len();
        let mut bytes = Vec::new();
        let end = loop {
            match End::parse(format, &bytes) {
                Ok(end) => break end,
                Err(Ok(more)) if more as u64 <= len => {
                    bytes.clear();
                    append(&file, len - more as u64..len, &mut bytes).map_err(unread)?;
                }
                Err(wrong) => {
                    let short = |_| format!("it has {len} bytes, and its end claims more");
                    let what = wrong.map_or_else(|what| what, short);
                    return Err(no_file(path, format, &what));
                }
            }
        };
        let footer = bytes.split_off(end.block);
        let source = Source {
            file,
            len,
            end: Bytes::new(),
        };
        Self::new(path, source, end, footer.into())
            .ok_or_else(|| no_file(path, format, "it is cut"))
    }

    /// The file whose first bytes are in `file`, at `path`, and whose last ones are in `end`; `None` where they do not fit.
    pub(crate) fn with_end(path: &Path, file: File, end: Vec<u8>, format: Format) -> Option<Self> {
        let found = End::parse(format, &end).ok()?;
        let bytes = Bytes::from(end);
        let data: u64 = found
            .segments
            .iter()
            .map(|part| u64::from(part.bytes))
            .sum();
        let source = Source {
            len: data + (found.block + found.footer) as u64,
            file,
            end: bytes.clone(),
        };
        let footer = bytes.slice(bytes.len() - found.footer..);
        Self::new(path, source, found, footer)
    }

    fn new(path: &Path, source: Source, end: End, footer: Bytes) -> Option<Self> {
        let mut starts = vec![0_u64];
        for segment in &end.segments {
            starts.push(starts.last()? + u64::from(segment.bytes));
        }
        let behind = (end.block + end.footer) as u64;
        (*starts.last()? + behind == source.len).then(|| {
            Self(Arc::new(Inner {
                path: path.to_owned(),
                source,
                starts,
                is_verified: end.segments.iter().map(|_| AtomicBool::default()).collect(),
                segments: end.segments,
                recent: Mutex::default(),
                footer,
                failure: Mutex::default(),
            }))
        })
    }

    /// The footer, with its length and the magic string behind it.
    pub(crate) fn footer(&self) -> &Bytes {
        &self.0.footer
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// The segments that lie in `range`, where one begins and one ends.
    pub(crate) fn segments(&self, range: Range<u64>) -> &[Segment] {
        let [first, end] = [range.start, range.end]
            .map(|place| self.0.starts.partition_point(|&start| start < place));
        self.0.segments.get(first..end).unwrap_or_default()
    }

    /// Verified bytes of the file.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let inner = &*self.0;
        let footer = inner.source.len - inner.footer.len() as u64;
        if let Some(start) = range.start.checked_sub(footer) {
            let end = range.end.min(inner.source.len) - footer;
            return Ok(inner.footer.slice(start as usize..end as usize));
        }
        let after = |at| inner.starts.partition_point(|&start| start <= at);
        let first = after(range.start) - 1;
        let last = after(range.end.saturating_sub(1)) - 1;
        if last >= inner.segments.len() {
            let what = format!("it refers to bytes {} to {}", range.start, range.end);
            return Err(StoreError::malformed(&inner.path, what));
        }
        let bytes = self.segments_from(first, last)?;
        let start = (range.start - inner.starts[first]) as usize;
        Ok(bytes.slice(start..start + (range.end - range.start) as usize))
    }

    /// The bytes of segments `first` to `last`. The last one is kept: what is read next begins in it.
    fn segments_from(&self, first: usize, last: usize) -> Result<Bytes, StoreError> {
        let inner = &*self.0;
        let recent = locked(&inner.recent);
        let known = recent.iter().find(|(index, _)| *index == first);
        let known = known.map(|(_, bytes)| bytes.clone());
        drop(recent);
        let bytes = match known {
            Some(bytes) if first == last => return Ok(bytes),
            known => {
                let length = inner.starts[last + 1] - inner.starts[first];
                let mut bytes = Vec::with_capacity(length as usize);
                bytes.extend_from_slice(known.as_deref().unwrap_or_default());
                self.verified(first + usize::from(known.is_some())..last + 1, &mut bytes)?;
                Bytes::from(bytes)
            }
        };
        let end = bytes.slice(bytes.len() - inner.segments[last].bytes as usize..);
        let mut recent = locked(&inner.recent);
        recent.truncate(RECENT - 1);
        recent.push_front((last, end));
        Ok(bytes)
    }

    /// Appends the bytes of some segments, verified.
    fn verified(&self, segments: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), StoreError> {
        let inner = &*self.0;
        let place = |index: usize| inner.starts[index]..inner.starts[index + 1];
        let all = inner.starts[segments.start]..inner.starts[segments.end];
        let mut rest = bytes.len();
        let read = inner.source.append(all.clone(), bytes);
        read.map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => StoreError::Damaged {
                path: inner.path.clone(),
                bytes: all,
            },
            _ => StoreError::cannot_read(&inner.path)(source),
        })?;
        for index in segments {
            let segment = inner.segments[index];
            let next = rest + segment.bytes as usize;
            if !segment.is(&bytes[rest..next]) {
                return Err(StoreError::Damaged {
                    path: inner.path.clone(),
                    bytes: place(index),
                });
            }
            inner.is_verified[index].store(true, Ordering::Relaxed);
            rest = next;
        }
        Ok(())
    }

    /// Verifies what has not been read. `stop` is looked at between segments.
    pub(crate) fn verify_rest(&self, stop: &Stop) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for (index, is_verified) in self.0.is_verified.iter().enumerate() {
            if stop.requested() {
                return Err(StoreError::Stopped);
            }
            if !is_verified.load(Ordering::Relaxed) {
                bytes.clear();
                self.verified(index..index + 1, &mut bytes)?;
            }
        }
        Ok(())
    }

    /// The error of a decoder of this file: the error that it got from reading, if there is one.
    pub(crate) fn failed(&self, error: impl FnOnce(&Path) -> StoreError) -> StoreError {
        locked(&self.0.failure)
            .take()
            .unwrap_or_else(|| error(&self.0.path))
    }

    fn for_decoder(&self, range: Range<u64>) -> ParquetResult<Bytes> {
        self.read(range).map_err(|error| {
            let text = ParquetError::General(error.to_string());
            *locked(&self.0.failure) = Some(error);
            text
        })
    }
}

/// Appends the bytes of a file in `range` to `bytes`.
pub(crate) fn append(file: &File, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut at = range.start;
    let end = bytes.len() + (range.end - range.start) as usize;
    bytes.reserve_exact(end - bytes.len());
    // Not `read_exact_at`, for which the memory would have to be filled with zeros first.
    while bytes.len() < end {
        match pread(file, spare_capacity(bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(end);
    Ok(())
}

fn no_file(path: &Path, format: Format, what: &str) -> StoreError {
    let format = format.name();
    StoreError::malformed(path, format_args!("not a readable {format} file: {what}"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Length for VerifiedFile {
    fn len(&self) -> u64 {
        self.0.source.len
    }
}

impl ChunkReader for VerifiedFile {
    type T = Stream;

    fn get_read(&self, start: u64) -> ParquetResult<Stream> {
        Ok(Stream {
            file: self.clone(),
            at: start,
            bytes: Bytes::new(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.for_decoder(start..start.saturating_add(length as u64))
    }
}

/// The bytes of a file from some place on.
pub(crate) struct Stream {
    file: VerifiedFile,
    at: u64,
    /// Verified, and not yet given.
    bytes: Bytes,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            let starts = &self.file.0.starts;
            let after = starts.partition_point(|&start| start <= self.at);
            let end = starts
                .get(after)
                .copied()
                .unwrap_or_else(|| self.file.len());
            self.bytes = self.file.for_decoder(self.at..end)?;
            self.at = end;
        }
        let count = self.bytes.as_ref().read(buffer)?;
        drop(self.bytes.split_to(count));
        Ok(count)
    }
}
