//! An embeddings file that grows by row groups, and that a later run can continue.
//!
//! The end of the file, its *footer*, lists the row groups that are on disk. It changes with every row group: until the file is
//! complete, the footer is in a file beside it, which is replaced as a whole. A killed writer loses only the row groups after the
//! last footer.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind::{InvalidData, UnexpectedEof};
use std::io::{self, Write};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use bytes::Bytes;
use parquet::errors::ParquetError;
use plmkit_contract::{EmbeddingLayout, Kind, Provenance, RowDigest};
use plmkit_kit::Stop;
use rustix::fs::{Advice, fadvise};

use crate::checksums::{End, Format, bytes};
use crate::embeddings::embeddings_encoder;
use crate::footer_writer::RowGroups;
use crate::lock::is_at;
use crate::parquet::entries;
use crate::parquet_writer::ParquetWriter;
use crate::row_group::{PlacedRowGroup, RowGroup, RowGroupEncoder, indexed_metadata, placed_group};
use crate::verified::append;
use crate::{AtomicFile, StoreError, remove_file};

/// The option of a footer with the row digest of each row group.
const ROW_GROUPS: &str = "row_groups";
/// The extension of a footer's file, instead of `parquet`.
const FOOTER: &str = "footer";

/// The most threads that encode at once. Twelve were no faster for residues of an H200, in memory and on a disk.
const MAX_ENCODERS: usize = 4;

/// An unfinished embeddings file, which outlives its writer.
pub struct UnfinishedEmbeddings {
    path: PathBuf,
    sink: Sink,
    groups: RowGroups,
    /// The most threads that encode, or verify, at once.
    threads: usize,
    /// Encode the next row groups and write them, each behind the one before it.
    encoders: VecDeque<JoinHandle<Result<PlacedRowGroup, StoreError>>>,
    /// Receives where the next row group starts, once the one before it is encoded.
    next_start: Receiver<u64>,
}

/// Encodes row groups and writes them into an unfinished file, from several threads.
#[derive(Clone)]
struct Sink {
    encoder: Arc<RowGroupEncoder>,
    file: Arc<File>,
    /// The path in messages.
    named: PathBuf,
}

impl Sink {
    /// Encodes a row group.
    fn encode(&self, batches: &[RecordBatch]) -> Result<RowGroup, StoreError> {
        let group = self.encoder.encode(batches);
        group.map_err(|error| self.encoding(error))
    }

    /// Writes a row group at the offset `start`.
    fn write(&self, group: &RowGroup, start: u64) -> Result<PlacedRowGroup, StoreError> {
        let mut offset = start;
        for bytes in &group.pieces {
            self.write_bytes(offset, bytes)?;
            offset += bytes.len() as u64;
        }
        // The system starts to write to disk now, so that `write_footer` waits less, and frees the memory of written pages. Errors do
        // not matter.
        let _ = fadvise(&self.file, 0, NonZero::new(offset), Advice::DontNeed);
        group.placed(start).map_err(|error| self.encoding(error))
    }

    /// Reads and verifies the segments of a row group, and gives each to `use_bytes`.
    fn read_segments(
        &self,
        group: &PlacedRowGroup,
        mut use_bytes: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut start = group.start;
        let mut bytes = Vec::new();
        for segment in &group.segments {
            let end = start + u64::from(segment.bytes);
            bytes.clear();
            append(&self.file, start..end, &mut bytes)?;
            if !segment.matches(&bytes) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            use_bytes(&bytes)?;
            start = end;
        }
        Ok(())
    }

    /// Makes the error of a failed write.
    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::cannot_write(&self.named)(source)
    }

    fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(&self.named, error)
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|source| self.failed(source))
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.file.set_len(len).map_err(|source| self.failed(source))
    }
}

impl UnfinishedEmbeddings {
    /// Creates a file at `path`, replacing an existing one. Messages name `named`. Of the `threads` of a run, some encode.
    pub fn create(
        path: &Path,
        named: &Path,
        layout: &EmbeddingLayout,
        threads: NonZero<usize>,
    ) -> Result<Self, StoreError> {
        remove_file(&Self::footer_file(path))?;
        // Another run that has the file open may still write into it.
        remove_file(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(StoreError::cannot_create(named))?;
        let created = Self::new(path, named, file, layout, threads, RowGroups::default())?;
        created.sink.write_bytes(0, Format::Parquet.magic())?;
        Ok(created)
    }

    /// Opens the file at `path`, with the provenance of its last footer; `None` if there is no file, or no footer. Does not verify
    /// the row groups.
    pub fn open(
        path: &Path,
        named: &Path,
        layout: &EmbeddingLayout,
        threads: NonZero<usize>,
    ) -> Result<Option<(Self, Provenance)>, StoreError> {
        let failed = StoreError::cannot_read(path);
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let footer = match fs::read(Self::footer_file(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            footer => footer.map_err(failed)?,
        };
        let (groups, provenance) = read_footer(path, footer)?;
        if groups.end() > file.metadata().map_err(failed)?.len() {
            return Err(StoreError::malformed(path, "it is cut"));
        }
        let opened = Self::new(path, named, file, layout, threads, groups)?;
        Ok(Some((opened, provenance)))
    }

    fn new(
        path: &Path,
        named: &Path,
        file: File,
        layout: &EmbeddingLayout,
        threads: NonZero<usize>,
        groups: RowGroups,
    ) -> Result<Self, StoreError> {
        let (start, next_start) = channel();
        // The receiver is here.
        let _ = start.send(groups.end());
        Ok(Self {
            path: path.to_owned(),
            sink: Sink {
                encoder: Arc::new(embeddings_encoder(path, layout)?),
                file: Arc::new(file),
                named: named.to_owned(),
            },
            groups,
            threads: threads.get().min(MAX_ENCODERS),
            encoders: VecDeque::new(),
            next_start,
        })
    }

    /// Returns the path of the footer of a growing file at `path`.
    pub fn footer_file(path: &Path) -> PathBuf {
        path.with_extension(FOOTER)
    }

    /// Cuts rows into row groups.
    pub fn cut(&self, rows: &[RecordBatch]) -> Vec<Vec<RecordBatch>> {
        self.sink.encoder.cut(rows.iter())
    }

    /// Returns the number of row groups that are written.
    pub fn row_groups(&self) -> usize {
        self.groups.0.len()
    }

    /// Starts to encode and write the next row group, in a thread. Waits while too many row groups are in progress.
    pub fn submit(&mut self, rows: Vec<RecordBatch>) -> Result<(), StoreError> {
        let is_written = |encoder: &JoinHandle<_>| encoder.is_finished();
        while self.encoders.len() >= self.threads || self.encoders.front().is_some_and(is_written) {
            self.wait()?;
        }
        let (end, next_start) = channel();
        let start = std::mem::replace(&mut self.next_start, next_start);
        let sink = self.sink.clone();
        let thread = thread::Builder::new().name("encoder".into());
        let thread = thread.spawn(move || {
            let group = sink.encode(&rows)?;
            let start = start.recv().map_err(|_| {
                sink.failed(io::Error::other("the row group before it was not written"))
            })?;
            let _ = end.send(start + group.bytes());
            sink.write(&group, start)
        });
        let thread = thread.map_err(|source| self.sink.failed(source))?;
        self.encoders.push_back(thread);
        Ok(())
    }

    /// Waits until all submitted row groups are written, or until all threads have ended after one of them failed.
    pub fn wait_for_all(&mut self) -> Result<(), StoreError> {
        while !self.encoders.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for the first row group in progress. Nothing can follow one that is missing.
    fn wait(&mut self) -> Result<(), StoreError> {
        match self.encoders.pop_front().map(join) {
            Some(Ok(written)) => self.groups.push(written),
            Some(Err(error)) => {
                self.encoders.drain(..).for_each(|other| drop(join(other)));
                return Err(error);
            }
            None => {}
        }
        Ok(())
    }

    /// Verifies the bytes of all row groups; returns whether each of them is intact.
    pub fn verify(&self, stop: &Stop) -> Result<Vec<bool>, StoreError> {
        let (sink, failed) = (&self.sink, StoreError::cannot_read(&self.path));
        let verify = |groups: &[PlacedRowGroup]| {
            let intact = groups.iter().map(|group| {
                StoreError::check(stop)?;
                match sink.read_segments(group, |_| Ok(())) {
                    Ok(()) => Ok(true),
                    Err(error) if matches!(error.kind(), InvalidData | UnexpectedEof) => Ok(false),
                    Err(error) => Err(failed(error)),
                }
            });
            intact.collect::<Result<Vec<bool>, _>>()
        };
        let share = self.row_groups().div_ceil(self.threads).max(1);
        let verified = thread::scope(|scope| {
            let shares = self.groups.0.chunks(share);
            let threads: Vec<_> = shares
                .map(|groups| scope.spawn(move || verify(groups)))
                .collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Result<Vec<_>, _>>()
        });
        Ok(verified?.concat())
    }

    /// Saves all row groups for a later run: syncs their bytes, and writes a footer beside them.
    pub fn write_footer(&self, provenance: &Provenance) -> Result<(), StoreError> {
        let groups = self.groups.0.iter();
        let rows: Vec<_> = groups.map(|group| group.rows.to_string()).collect();
        let provenance = provenance.clone().with(ROW_GROUPS, rows);
        let footer = self
            .groups
            .footer(&self.sink.encoder, &provenance, &self.path)?;
        let synced = self.sink.file.sync_data();
        synced.map_err(|source| self.sink.failed(source))?;
        let mut file = AtomicFile::create(&Self::footer_file(&self.path))?;
        file.append(&footer)?;
        file.finish()
    }

    /// Removes all but the first `count` row groups, and saves these for a later run, unless the file was published.
    pub fn truncate(&mut self, count: usize, provenance: &Provenance) -> Result<(), StoreError> {
        let is_here = is_at(&self.sink.file, &self.path);
        if !is_here.map_err(|source| self.sink.failed(source))? {
            return Ok(());
        }
        self.groups.0.truncate(count);
        self.write_footer(provenance)?;
        self.sink.set_len(self.groups.end())
    }

    /// Copies some row groups into a new embeddings file, byte by byte.
    pub fn copy(
        &self,
        groups: Range<usize>,
        to: &Path,
        provenance: &Provenance,
    ) -> Result<(), StoreError> {
        let mut writer = ParquetWriter::create(to, Arc::clone(&self.sink.encoder))?;
        for group in &self.groups.0[groups] {
            self.sink
                .read_segments(group, |bytes| writer.file.write_all(bytes))
                .map_err(StoreError::cannot_write(to))?;
            let group = group.clone().with_offset(writer.groups.end());
            let group = group.map_err(|error| writer.encoding(error))?;
            writer.groups.push(group);
        }
        writer.finish(provenance)?.1.finish()
    }

    /// Completes the file and publishes it at the path of `claim`, by renaming if both are on one file system. Returns the digest of
    /// all rows.
    pub fn publish(
        &self,
        provenance: &Provenance,
        claim: AtomicFile,
    ) -> Result<RowDigest, StoreError> {
        let named = &self.sink.named;
        let footer = self.groups.footer(&self.sink.encoder, provenance, named)?;
        self.sink.set_len(self.groups.end())?;
        self.sink.write_bytes(self.groups.end(), &footer)?;
        claim.finish_as(&self.sink.file, &self.path)?;
        Ok(self.groups.rows())
    }
}

fn join<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads the row groups and the provenance of a footer of the file at `path`.
fn read_footer(path: &Path, footer: Vec<u8>) -> Result<(RowGroups, Provenance), StoreError> {
    let malformed = |what: &str| StoreError::malformed(path, what);
    let broken = |error: ParquetError| StoreError::decoding_parquet(path, &error);
    let damaged = || malformed("its footer is damaged");
    let end = End::parse(Format::Parquet, &footer).map_err(|_| damaged())?;
    let file_bytes = bytes(&end.segments) + (end.block + end.footer) as u64;
    let index = footer.len() - end.block - end.footer;
    let footer = Bytes::from(footer);
    let mut metadata = indexed_metadata();
    let parsed = metadata.try_parse_sized(&footer, file_bytes);
    let metadata = parsed.and_then(|()| metadata.finish()).map_err(broken)?;
    let (mut provenance, _) =
        Provenance::open(&entries(metadata.file_metadata()), Kind::Embeddings)
            .map_err(|error| StoreError::content(path, error))?;
    let rows = provenance.options.remove(ROW_GROUPS).unwrap_or_default();
    let rows: Vec<String> =
        serde_json::from_value(rows).map_err(|_| malformed("no list of row groups"))?;
    if rows.len() != metadata.num_row_groups() {
        return Err(malformed("its footer is of other row groups"));
    }
    let mut groups = RowGroups::default();
    let mut segments = end.segments.into_iter();
    for (number, rows) in rows.into_iter().enumerate() {
        let rows = rows.parse().map_err(|()| malformed("no digest of rows"))?;
        // The first bytes are of no row group.
        if number == 0 {
            segments.next();
        }
        let placed = placed_group(&metadata, number, groups.end(), rows, &mut segments);
        groups.push(placed.map_err(broken)?);
    }
    let mut at = 0;
    for segment in segments {
        let bytes = footer[..index].get(at..at + segment.bytes as usize);
        if !bytes.is_some_and(|bytes| segment.matches(bytes)) {
            return Err(damaged());
        }
        at += segment.bytes as usize;
    }
    Ok((groups, provenance))
}

#[cfg(test)]
mod tests;
