//! Files in which every byte is verified before it is used.

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use plmkit_kit::Stop;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use crate::StoreError;
use crate::checksums::{End, EndError, Format, Segment};
use crate::input::open_input;

/// The number of cached segments. A reader alternates between the columns of a row group, and pages do not end at segment ends.
const RECENT: usize = 16;

/// More than the bytes of a page header, whose statistics are short.
const HEADER_BYTES: u64 = 1 << 12;

/// A file with checksums, read segment by segment. It is a `ChunkReader` for the Parquet reader.
///
/// A segment is read into memory and verified there. A later change of the file does not affect bytes in use, and is detected
/// by the next read.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    /// Total number of bytes.
    len: u64,
    segments: Vec<Segment>,
    /// The start of each segment, and the end of the last one.
    starts: Vec<u64>,
    /// Whether each segment has been verified.
    is_verified: Vec<AtomicBool>,
    recent: Mutex<VecDeque<(usize, Bytes)>>,
    /// The footer and the trailer.
    footer: Bytes,
    /// The last error that a decoder received. The decoder returns only its text.
    failure: Mutex<Option<StoreError>>,
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
                Err(EndError::NeedsBytes(count)) if count as u64 <= len => {
                    bytes.clear();
                    append(&file, len - count as u64..len, &mut bytes).map_err(unread)?;
                }
                Err(EndError::NeedsBytes(_)) => {
                    let what = format!("it has {len} bytes, and its end claims more");
                    return Err(unreadable(path, format, &what));
                }
                Err(EndError::NoChecksums(what)) => return Err(StoreError::malformed(path, what)),
                Err(EndError::Invalid(what)) => return Err(unreadable(path, format, &what)),
            }
        };
        let footer = bytes.split_off(end.block);
        let mut starts = vec![0];
        let mut data = 0;
        for segment in &end.segments {
            data += u64::from(segment.bytes);
            starts.push(data);
        }
        if data + (end.block + end.footer) as u64 != len {
            return Err(unreadable(path, format, "it is cut"));
        }
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            file,
            len,
            starts,
            is_verified: end.segments.iter().map(|_| AtomicBool::default()).collect(),
            segments: end.segments,
            recent: Mutex::default(),
            footer: footer.into(),
            failure: Mutex::default(),
        })))
    }

    /// Returns the footer and the trailer.
    pub(crate) fn footer(&self) -> &Bytes {
        &self.0.footer
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Reads and verifies the bytes in `range`.
    pub(crate) fn read(&self, range: Range<u64>) -> Result<Bytes, StoreError> {
        let inner = &*self.0;
        let footer = inner.len - inner.footer.len() as u64;
        if let Some(start) = range.start.checked_sub(footer) {
            let end = range.end.min(inner.len) - footer;
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

    /// Reads segments `first` to `last`. Caches the last one, because the next read usually starts in it.
    fn segments_from(&self, first: usize, last: usize) -> Result<Bytes, StoreError> {
        let inner = &*self.0;
        let recent = locked(&inner.recent);
        let cached = recent.iter().find(|(index, _)| *index == first);
        let cached = cached.map(|(_, bytes)| bytes.clone());
        drop(recent);
        let bytes = match cached {
            Some(bytes) if first == last => return Ok(bytes),
            cached => {
                let length = inner.starts[last + 1] - inner.starts[first];
                let mut bytes = Vec::with_capacity(length as usize);
                bytes.extend_from_slice(cached.as_deref().unwrap_or_default());
                self.read_segments(first + usize::from(cached.is_some())..last + 1, &mut bytes)?;
                Bytes::from(bytes)
            }
        };
        let end = bytes.slice(bytes.len() - inner.segments[last].bytes as usize..);
        let mut recent = locked(&inner.recent);
        recent.truncate(RECENT - 1);
        recent.push_front((last, end));
        Ok(bytes)
    }

    /// Appends the bytes of some segments to `bytes`, and verifies them.
    fn read_segments(&self, segments: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), StoreError> {
        let inner = &*self.0;
        let damaged = |from: usize, to: usize| {
            StoreError::damaged(&inner.path, &(inner.starts[from]..inner.starts[to]))
        };
        let mut start = bytes.len();
        let range = inner.starts[segments.start]..inner.starts[segments.end];
        append(&inner.file, range, bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => damaged(segments.start, segments.end),
            _ => StoreError::cannot_read(&inner.path)(source),
        })?;
        for index in segments {
            let segment = inner.segments[index];
            let end = start + segment.bytes as usize;
            if !segment.matches(&bytes[start..end]) {
                return Err(damaged(index, index + 1));
            }
            inner.is_verified[index].store(true, Ordering::Relaxed);
            start = end;
        }
        Ok(())
    }

    /// Verifies the segments that were not read. Polls `stop` between segments.
    pub(crate) fn verify_rest(&self, stop: &Stop) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for (index, is_verified) in self.0.is_verified.iter().enumerate() {
            StoreError::check(stop)?;
            if !is_verified.load(Ordering::Relaxed) {
                bytes.clear();
                self.read_segments(index..index + 1, &mut bytes)?;
            }
        }
        Ok(())
    }

    /// Converts an error of the Parquet decoder. If reading failed, returns that error.
    pub(crate) fn decoding_error(&self, error: &(dyn Error + 'static)) -> StoreError {
        locked(&self.0.failure)
            .take()
            .unwrap_or_else(|| StoreError::decoding_parquet(&self.0.path, error))
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
    // `read_exact_at` would need memory filled with zeros.
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

fn unreadable(path: &Path, format: Format, what: &str) -> StoreError {
    let format = format.name();
    StoreError::malformed(path, format_args!("not a readable {format} file: {what}"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Length for VerifiedFile {
    fn len(&self) -> u64 {
        self.0.len
    }
}

impl ChunkReader for VerifiedFile {
    type T = Reader<Bytes>;

    /// Reads a page header, or the trailer.
    fn get_read(&self, start: u64) -> ParquetResult<Reader<Bytes>> {
        let data = *self.0.starts.last().unwrap_or(&0);
        let end = if start < data {
            data.min(start + HEADER_BYTES)
        } else {
            self.0.len
        };
        self.for_decoder(start..end).map(Bytes::reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.for_decoder(start..start.saturating_add(length as u64))
    }
}
