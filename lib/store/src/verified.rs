//! Files whose every byte is verified before it is used.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use plmkit_contract::Stop;
use xxhash_rust::xxh3::xxh3_128;

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
    /// Whether each segment was seen to be whole.
    seen: Vec<AtomicBool>,
    recent: Mutex<VecDeque<(usize, Bytes)>>,
    /// The footer and what is behind it.
    footer: Bytes,
    /// What a decoder was told last, which it passes on as text.
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
    fn read(&self, start: u64, bytes: &mut [u8]) -> io::Result<()> {
        match start.checked_sub(self.len - self.end.len() as u64) {
            Some(at) => {
                let mut rest = self.end.get(at as usize..).unwrap_or_default();
                rest.read_exact(bytes)
            }
            None => self.file.read_exact_at(bytes, start),
        }
    }
}

impl VerifiedFile {
    /// Opens a file and verifies its end.
    pub(crate) fn open(path: &Path, format: Format) -> Result<Self, StoreError> {
        let file = open_input(path)?;
        let unread = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let len = file.metadata().map_err(unread)?.len();
        let mut bytes = Vec::new();
        let end = loop {
            match End::parse(format, &bytes) {
                Ok(end) => break end,
                Err(Ok(more)) if more as u64 <= len => {
                    bytes.resize(more, 0);
                    file.read_exact_at(&mut bytes, len - more as u64)
                        .map_err(unread)?;
                }
                Err(wrong) => {
                    let wrong = wrong.map(|_| "it is cut".to_owned());
                    return Err(no_file(path, format, &wrong.unwrap_or_else(|what| what)));
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
        let data: u64 = found.segments.iter().map(|part| u64::from(part.bytes)).sum();
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
                seen: end.segments.iter().map(|_| AtomicBool::default()).collect(),
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
        let first = inner.starts.partition_point(|&start| start <= range.start) - 1;
        let mut all = Vec::new();
        for index in first..inner.segments.len() {
            let (start, end) = (inner.starts[index], inner.starts[index + 1]);
            let segment = self.segment(index)?;
            let from = range.start.max(start) - start;
            let part = segment.slice(from as usize..(range.end.min(end) - start) as usize);
            if range.end <= end && all.is_empty() {
                return Ok(part);
            }
            all.reserve((range.end - range.start) as usize - all.len());
            all.extend_from_slice(&part);
            if range.end <= end {
                return Ok(all.into());
            }
        }
        let what = format!("it refers to bytes {} to {}", range.start, range.end);
        Err(StoreError::malformed(&inner.path, what))
    }

    /// Segment `index`, from memory or from the file.
    fn segment(&self, index: usize) -> Result<Bytes, StoreError> {
        let recent = locked(&self.0.recent);
        if let Some((_, bytes)) = recent.iter().find(|(found, _)| *found == index) {
            return Ok(bytes.clone());
        }
        drop(recent);
        let mut bytes = Vec::new();
        self.verify_segment(index, &mut bytes)?;
        let bytes = Bytes::from(bytes);
        let mut recent = locked(&self.0.recent);
        recent.truncate(RECENT - 1);
        recent.push_front((index, bytes.clone()));
        Ok(bytes)
    }

    fn verify_segment(&self, index: usize, bytes: &mut Vec<u8>) -> Result<(), StoreError> {
        let inner = &*self.0;
        let (start, segment) = (inner.starts[index], inner.segments[index]);
        match is_whole(|at, bytes| inner.source.read(at, bytes), start, segment, bytes) {
            Ok(true) => {
                inner.seen[index].store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(source) if source.kind() != io::ErrorKind::UnexpectedEof => Err(StoreError::Read {
                path: inner.path.clone(),
                source,
            }),
            _ => Err(StoreError::Damaged {
                path: inner.path.clone(),
                bytes: start..start + u64::from(segment.bytes),
            }),
        }
    }

    /// Verifies what has not been read. `stop` is looked at between segments.
    pub(crate) fn verify_rest(&self, stop: &Stop) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for (index, seen) in self.0.seen.iter().enumerate() {
            if stop.requested() {
                return Err(StoreError::Stopped);
            }
            if !seen.load(Ordering::Relaxed) {
                self.verify_segment(index, &mut bytes)?;
            }
        }
        Ok(())
    }

    /// The error of a decoder of this file: what it was told in reading, where that failed.
    pub(crate) fn failed(&self, error: impl FnOnce(&Path) -> StoreError) -> StoreError {
        locked(&self.0.failure)
            .take()
            .unwrap_or_else(|| error(&self.0.path))
    }

    fn for_decoder(&self, range: Range<u64>) -> ParquetResult<Bytes> {
        self.read(range).map_err(|error| {
            let told = ParquetError::General(error.to_string());
            *locked(&self.0.failure) = Some(error);
            told
        })
    }
}

/// Reads a segment into `bytes`, and says whether it is as it was written.
pub(crate) fn is_whole(
    read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
    start: u64,
    segment: Segment,
    bytes: &mut Vec<u8>,
) -> io::Result<bool> {
    bytes.resize(segment.bytes as usize, 0);
    read(start, bytes)?;
    Ok(xxh3_128(bytes) == segment.digest)
}

fn no_file(path: &Path, format: Format, what: &str) -> StoreError {
    let format = format.name();
    StoreError::malformed(path, format_args!("not a whole {format} file of plmkit: {what}"))
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
            let end = starts.get(after).copied().unwrap_or_else(|| self.file.len());
            self.bytes = self.file.for_decoder(self.at..end)?;
            self.at = end;
        }
        let count = self.bytes.as_ref().read(buffer)?;
        drop(self.bytes.split_to(count));
        Ok(count)
    }
}
