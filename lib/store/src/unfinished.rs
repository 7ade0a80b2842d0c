//! An embeddings file that grows by row groups, and of which a later run takes over what is there.
//!
//! What makes it a file, the footer, changes with each row group, so it is kept aside while the file grows: a *record* of the row
//! groups that are on disk, in a file of its own that is replaced as a whole. A file that is closed before it is complete has its
//! record at its end. Either way a killed writer loses what came after the last record, and nothing before.
//!
//! ```text
//! record: page index and footer │ u64 where they belong │ XXH3-128 of both │ u64 bytes of both │ "plmkit-r"
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataOptions, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use plmkit_contract::{ByteDigest, EmbeddingLayout, Kind, Provenance, RowDigest, Stop};
use rustix::fs::{Advice, fadvise};
use xxhash_rust::xxh3::xxh3_128;

use crate::footer_writer::RowGroups;
use crate::guard::guard;
use crate::lock::is_at;
use crate::row_group::{Described, MAGIC, PlacedRowGroup, RowGroup, RowGroupEncoder};
use crate::{AtomicFile, FileSummary, StoreError};

/// The option in which a record has the digests of row groups.
const ROW_GROUPS: &str = "row_groups";
const RECORD_MAGIC: &[u8; 8] = b"plmkit-r";
/// Bytes of a record behind the footer.
const TRAILER: usize = 40;
/// What the name of the file of a record ends with, in place of `parquet`.
const RECORD: &str = "record";

/// An embeddings file under construction that survives its writer.
pub struct UnfinishedEmbeddings {
    path: PathBuf,
    /// What messages name.
    named: PathBuf,
    file: Arc<File>,
    encoder: RowGroupEncoder,
    groups: RowGroups,
}

impl UnfinishedEmbeddings {
    /// Begins a file at `path`, in place of any that is there. Messages name `named`.
    pub fn create(path: &Path, named: &Path, layout: &EmbeddingLayout) -> Result<Self, StoreError> {
        remove(&Self::record_of(path))?;
        let failed = |source| StoreError::Create {
            path: named.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed)?;
        let new = Self {
            path: path.to_owned(),
            named: named.to_owned(),
            file: Arc::new(file),
            encoder: encoder(path, layout)?,
            groups: RowGroups::default(),
        };
        new.write(0, MAGIC)?;
        Ok(new)
    }

    /// Opens the file at `path`, with the provenance of its last record; `None` where nothing of it was kept. What is in the
    /// row groups is not verified.
    pub fn open(
        path: &Path,
        named: &Path,
        layout: &EmbeddingLayout,
    ) -> Result<Option<(Self, Provenance)>, StoreError> {
        let failed = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let mut file = opened.map_err(failed)?;
        let bytes = match fs::read(Self::record_of(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => tail(&mut file),
            read => read,
        };
        let bytes = bytes.map_err(failed)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let len = file.metadata().map_err(failed)?.len();
        let (groups, provenance) = guard(path, || Self::decode(path, bytes, len))?;
        let file = Self {
            path: path.to_owned(),
            named: named.to_owned(),
            file: Arc::new(file),
            encoder: encoder(path, layout)?,
            groups,
        };
        Ok(Some((file, provenance)))
    }

    /// The row groups of a record, and the provenance, for a file of `len` bytes.
    fn decode(
        path: &Path,
        record: Vec<u8>,
        len: u64,
    ) -> Result<(RowGroups, Provenance), StoreError> {
        let malformed = |what: &str| StoreError::malformed(path, what);
        let footer = checked(record).ok_or_else(|| malformed("its record is damaged"))?;
        let broken = |error: ParquetError| StoreError::decoding_parquet(path, &error);
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Optional)
            // As they were written, so that they can be written again.
            .with_metadata_options(Some(
                ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false),
            ))
            .parse_and_finish(&footer)
            .map_err(broken)?;
        let about = metadata.file_metadata();
        let entries = about.key_value_metadata();
        let schema = parquet_to_arrow_schema(about.schema_descr(), entries).map_err(broken)?;
        let entries: BTreeMap<String, String> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
            .collect();
        let (mut provenance, _) =
            Provenance::open(&entries, Kind::Embeddings, &schema).map_err(|source| {
                StoreError::Metadata {
                    path: path.to_owned(),
                    source,
                }
            })?;
        let digests = provenance.options.remove(ROW_GROUPS).unwrap_or_default();
        let digests: Vec<(String, String)> =
            serde_json::from_value(digests).map_err(|_| malformed("no record of row groups"))?;
        if digests.len() != metadata.num_row_groups() {
            return Err(malformed("its record is of other row groups"));
        }
        let mut groups = RowGroups::default();
        for (number, (group, (digest, rows))) in
            metadata.row_groups().iter().zip(digests).enumerate()
        {
            let start = groups.end();
            let sizes = group.columns().iter().map(|column| column.byte_range().1);
            let index = metadata.page_index_for_row_group(number);
            let columns = 0..group.num_columns();
            groups.push(PlacedRowGroup {
                bytes: sizes.sum(),
                start,
                digest,
                rows: rows.parse().map_err(|()| malformed("no digest of rows"))?,
                described: Described {
                    group: group.clone(),
                    column_indexes: columns
                        .clone()
                        .map(|at| index.column_index(at).cloned())
                        .collect(),
                    offset_indexes: columns.map(|at| index.offset_index(at).cloned()).collect(),
                },
            });
        }
        if groups.end() != footer.place || groups.end() > len {
            return Err(malformed("it is cut"));
        }
        Ok((groups, provenance))
    }

    /// Where the record of the file at `path` is while that grows.
    pub fn record_of(path: &Path) -> PathBuf {
        path.with_extension(RECORD)
    }

    /// What encodes its rows.
    pub fn encoder(&self) -> &RowGroupEncoder {
        &self.encoder
    }

    /// Where the next row group begins.
    pub fn end(&self) -> u64 {
        self.groups.end()
    }

    /// The digest of all rows.
    pub fn rows(&self) -> RowDigest {
        self.groups.rows()
    }

    /// How many row groups it has.
    pub fn len(&self) -> usize {
        self.groups.all().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What writes row groups into it, in any order and in several threads.
    pub fn sink(&self) -> Sink {
        Sink {
            file: Arc::clone(&self.file),
            named: self.named.clone(),
        }
    }

    /// Takes a row group for written that begins where the last one ends.
    pub fn push(&mut self, group: PlacedRowGroup) {
        self.groups.push(group);
    }

    /// Which of the row groups have the bytes that were written, by their digests.
    pub fn verify(&self, threads: usize, stop: &Stop) -> Result<Vec<bool>, StoreError> {
        let next = AtomicUsize::new(0);
        let check = || {
            let mut intact = Vec::new();
            let mut buffer = vec![0; 1 << 20];
            while let Some((number, group)) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                self.groups.all().get(number).map(|group| (number, group))
            } {
                if stop.requested() {
                    return Err(StoreError::Stopped);
                }
                let mut digest = ByteDigest::default();
                let read = self.pieces(group, &mut buffer, |bytes| {
                    digest.update(bytes);
                    Ok(())
                });
                intact.push((number, read.is_ok() && digest.to_string() == group.digest));
            }
            Ok(intact)
        };
        let mut all = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(check)).collect();
            let joined = threads.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            joined.collect::<Result<Vec<_>, _>>()
        })?
        .concat();
        all.sort_unstable();
        Ok(all.into_iter().map(|(_, intact)| intact).collect())
    }

    /// Reads the bytes of a row group, a buffer full at a time.
    fn pieces(
        &self,
        group: &PlacedRowGroup,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut place = group.start;
        while place < group.end() {
            let size = (group.end() - place).min(buffer.len() as u64) as usize;
            self.file.read_exact_at(&mut buffer[..size], place)?;
            take(&buffer[..size])?;
            place += size as u64;
        }
        Ok(())
    }

    /// Keeps all row groups for a later run: their bytes are on disk, and a record of them.
    pub fn record(&self, provenance: &Provenance) -> Result<(), StoreError> {
        let record = self.record_bytes(provenance)?;
        self.file
            .sync_data()
            .map_err(|source| self.failed(source))?;
        let path = Self::record_of(&self.path);
        let mut file = AtomicFile::create(&path)?;
        let written = file.write_all(&record);
        written.map_err(|source| StoreError::Write { path, source })?;
        file.finish()
    }

    /// Forgets all but the first `count` row groups.
    pub fn truncate(&mut self, count: usize, provenance: &Provenance) -> Result<(), StoreError> {
        self.groups.truncate(count);
        // A record that is at the end of the file goes with what follows.
        self.record(provenance)?;
        let cut = self.file.set_len(self.end());
        cut.map_err(|source| self.failed(source))
    }

    /// Keeps all row groups for a later run, with the record at the end: one file is left. One that has got its name is complete,
    /// and stays as it is.
    pub fn close(&self, provenance: &Provenance) -> Result<(), StoreError> {
        if !is_at(&self.file, &self.path).map_err(|source| self.failed(source))? {
            return Ok(());
        }
        let record = self.record_bytes(provenance)?;
        let cut = self.file.set_len(self.end());
        cut.map_err(|source| self.failed(source))?;
        self.write(self.end(), &record)?;
        self.file.sync_all().map_err(|source| self.failed(source))?;
        remove(&Self::record_of(&self.path))
    }

    /// Copies some of the row groups into an embeddings file of their own, byte by byte.
    pub fn copy(
        &self,
        groups: Range<usize>,
        to: &Path,
        provenance: &Provenance,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write {
            path: to.to_owned(),
            source,
        };
        let mut file = AtomicFile::create(to)?;
        let mut copied = RowGroups::default();
        let mut buffer = vec![0; 1 << 20];
        file.write_all(MAGIC).map_err(failed)?;
        for group in &self.groups.all()[groups] {
            self.pieces(group, &mut buffer, |bytes| file.write_all(bytes))
                .map_err(failed)?;
            let group = group.clone().moved(copied.end());
            copied.push(group.map_err(|error| StoreError::encoding_parquet(to, error))?);
        }
        let footer = copied.footer(&self.encoder, provenance);
        let footer = footer.map_err(|error| StoreError::encoding_parquet(to, error))?;
        file.write_all(&footer).map_err(failed)?;
        file.finish()
    }

    /// Completes the file and gives it the name that `claim` stands for, by renaming where both are on one file system.
    pub fn publish(
        &self,
        provenance: &Provenance,
        claim: AtomicFile,
    ) -> Result<FileSummary, StoreError> {
        let footer = self.groups.footer(&self.encoder, provenance);
        let footer = footer.map_err(|error| StoreError::encoding_parquet(&self.named, error))?;
        let cut = self.file.set_len(self.end());
        cut.map_err(|source| self.failed(source))?;
        self.write(self.end(), &footer)?;
        claim.finish_as(&self.file, &self.path)?;
        Ok(FileSummary {
            digest: self.rows(),
            bytes: self.end() + footer.len() as u64,
        })
    }

    fn record_bytes(&self, provenance: &Provenance) -> Result<Vec<u8>, StoreError> {
        let digests = self.groups.all().iter();
        let digests: Vec<_> = digests
            .map(|group| (group.digest.clone(), group.rows.to_string()))
            .collect();
        let provenance = provenance
            .clone()
            .with(ROW_GROUPS, serde_json::json!(digests));
        let footer = self.groups.footer(&self.encoder, &provenance);
        let mut record = footer.map_err(|error| StoreError::encoding_parquet(&self.path, error))?;
        record.extend(self.end().to_le_bytes());
        let length = record.len() as u64;
        record.extend(xxh3_128(&record).to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(RECORD_MAGIC);
        Ok(record)
    }

    fn write(&self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all_at(bytes, place);
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Write {
            path: self.named.clone(),
            source,
        }
    }
}

/// Writes row groups into a file.
#[derive(Clone)]
pub struct Sink {
    file: Arc<File>,
    named: PathBuf,
}

impl Sink {
    /// Writes a row group whose bytes begin at `start`.
    pub fn write(&self, group: &RowGroup, start: u64) -> Result<PlacedRowGroup, StoreError> {
        let mut place = start;
        let mut digest = ByteDigest::default();
        for bytes in group.pieces() {
            digest.update(bytes);
            let written = self.file.write_all_at(bytes, place);
            written.map_err(|source| self.failed(source))?;
            place += bytes.len() as u64;
        }
        // The system begins to write now what `record` would otherwise wait for all at once, and lets go of what is on disk: its memory
        // is used again for what follows, where new memory would be filled with zeros first. Where it does not, nothing is lost.
        let _ = fadvise(&self.file, 0, NonZero::new(place), Advice::DontNeed);
        let placed = group.placed(start, digest.to_string());
        placed.map_err(|error| self.encoding(error))
    }

    /// The error of something that cannot be written.
    pub fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Write {
            path: self.named.clone(),
            source,
        }
    }

    /// The error of rows that cannot be encoded.
    pub fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(&self.named, error)
    }
}

fn encoder(path: &Path, layout: &EmbeddingLayout) -> Result<RowGroupEncoder, StoreError> {
    RowGroupEncoder::new(layout).map_err(|error| StoreError::encoding_parquet(path, error))
}

/// The record at the end of a file; nothing where there is none.
fn tail(file: &mut File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut end = [0; 16];
    let Some(place) = len.checked_sub(end.len() as u64) else {
        return Ok(Vec::new());
    };
    file.read_exact_at(&mut end, place)?;
    let (length, magic) = end.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes"));
    let start = len.checked_sub(length.saturating_add(TRAILER as u64 - 8));
    let Some(start) = start.filter(|_| magic == RECORD_MAGIC) else {
        return Ok(Vec::new());
    };
    let mut record = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.read_to_end(&mut record)?;
    Ok(record)
}

/// The footer of a record whose digest is right.
fn checked(mut record: Vec<u8>) -> Option<Footer> {
    let length = record.len().checked_sub(TRAILER - 8)?;
    let (content, rest) = record.split_at(length);
    let expected = [
        &xxh3_128(content).to_le_bytes()[..],
        &(length as u64).to_le_bytes(),
        RECORD_MAGIC,
    ];
    let (_, place) = content.split_last_chunk()?;
    let place = u64::from_le_bytes(*place);
    if rest != expected.concat() {
        return None;
    }
    record.truncate(length - 8);
    Some(Footer {
        place,
        bytes: record.into(),
    })
}

/// A footer, as a file that has nothing before it.
struct Footer {
    place: u64,
    bytes: Bytes,
}

impl Footer {
    fn from(&self, start: u64) -> Option<Bytes> {
        let start = start.checked_sub(self.place)? as usize;
        (start <= self.bytes.len()).then(|| self.bytes.slice(start..))
    }
}

impl Length for Footer {
    fn len(&self) -> u64 {
        self.place + self.bytes.len() as u64
    }
}

impl ChunkReader for Footer {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let bytes = self.from(start).ok_or_else(outside)?;
        Ok(Cursor::new(bytes))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let bytes = self.from(start).filter(|bytes| length <= bytes.len());
        Ok(bytes.ok_or_else(outside)?.slice(..length))
    }
}

fn outside() -> ParquetError {
    ParquetError::General("a footer that refers to what is before it".to_owned())
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
