//! An embeddings file that grows by row groups, and of which a later run takes over what is there.
//!
//! What makes it a file, its end, changes with each row group, so it is kept aside while the file grows: a *record* of the row
//! groups that are on disk, in a file of its own that is replaced as a whole. A file that is closed before it is complete has its
//! record at its end, and is a Parquet file of the rows that it has. Either way a killed writer loses what came after the last
//! record, and nothing before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parquet::errors::ParquetError;
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaDataOptions, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::statistics::Statistics;
use plmkit_contract::{EmbeddingLayout, Kind, Provenance, RowDigest, Stop};

use crate::checksums::Format;
use crate::footer_writer::RowGroups;
use crate::lock::is_at;
use crate::parquet::entries;
use crate::row_group::{Described, PlacedRowGroup, RowGroupEncoder, bloom_filter};
use crate::sink::Sink;
use crate::verified::{VerifiedFile, append};
use crate::{AtomicFile, FileSummary, StoreError, remove_file};

/// The option in which a record has the digests of the rows of row groups.
const ROW_GROUPS: &str = "row_groups";
/// What the name of the file of a record ends with, in place of `parquet`.
const RECORD: &str = "record";

/// An embeddings file under construction that survives its writer.
pub struct UnfinishedEmbeddings {
    path: PathBuf,
    sink: Sink,
    encoder: RowGroupEncoder,
    groups: RowGroups,
}

impl UnfinishedEmbeddings {
    /// Begins a file at `path`, in place of any that is there. Messages name `named`.
    pub fn create(path: &Path, named: &Path, layout: &EmbeddingLayout) -> Result<Self, StoreError> {
        remove_file(&Self::record_of(path))?;
        let failed = StoreError::cannot_create(named);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(failed)?;
        let new = Self {
            path: path.to_owned(),
            sink: Sink::new(file, named),
            encoder: encoder(path, layout)?,
            groups: RowGroups::default(),
        };
        new.sink.write_bytes(0, Format::Parquet.magic())?;
        Ok(new)
    }

    /// Opens the file at `path`, with the provenance of its last record; `None` where nothing of it was kept. What is in the
    /// row groups is not verified.
    pub fn open(
        path: &Path,
        named: &Path,
        layout: &EmbeddingLayout,
    ) -> Result<Option<(Self, Provenance)>, StoreError> {
        let failed = StoreError::cannot_read(path);
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(failed)?;
        let verified = match fs::read(Self::record_of(path)) {
            Ok(record) => {
                let aside = file.try_clone().map_err(failed)?;
                VerifiedFile::with_end(path, aside, record, Format::Parquet)
                    .ok_or_else(|| StoreError::malformed(path, "its record is damaged"))?
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Err(_) if !is_closed(&file).map_err(failed)? => return Ok(None),
            Err(_) => VerifiedFile::open(path, Format::Parquet)?,
        };
        let (groups, provenance) = recorded(&verified)?;
        if groups.end() > file.metadata().map_err(failed)?.len() {
            return Err(StoreError::malformed(path, "it is cut"));
        }
        let file = Self {
            path: path.to_owned(),
            sink: Sink::new(file, named),
            encoder: encoder(path, layout)?,
            groups,
        };
        Ok(Some((file, provenance)))
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
        self.sink.clone()
    }

    /// Takes a row group for written that begins where the last one ends.
    pub fn push(&mut self, group: PlacedRowGroup) {
        self.groups.push(group);
    }

    /// Which of the row groups have the bytes that were written.
    pub fn verify(&self, threads: usize, stop: &Stop) -> Result<Vec<bool>, StoreError> {
        let next = AtomicUsize::new(0);
        let check = || {
            let mut intact = Vec::new();
            while let Some((number, group)) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                self.groups.all().get(number).map(|group| (number, group))
            } {
                if stop.requested() {
                    return Err(StoreError::Stopped);
                }
                intact.push((number, self.segments(group, |_| Ok(())).is_ok()));
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

    /// Reads the bytes of a row group and verifies them, segment by segment.
    fn segments(
        &self,
        group: &PlacedRowGroup,
        mut take: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut place = group.start;
        let mut bytes = Vec::new();
        for segment in &group.segments {
            let end = place + u64::from(segment.bytes);
            bytes.clear();
            append(&self.sink.file, place..end, &mut bytes)?;
            if !segment.is(&bytes) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            take(&bytes)?;
            place = end;
        }
        Ok(())
    }

    /// Keeps all row groups for a later run: their bytes are on disk, and a record of them.
    pub fn record(&self, provenance: &Provenance) -> Result<(), StoreError> {
        let record = self.record_bytes(provenance)?;
        self.sink
            .file
            .sync_data()
            .map_err(|source| self.sink.failed(source))?;
        let path = Self::record_of(&self.path);
        let mut file = AtomicFile::create(&path)?;
        file.append(&record)?;
        file.finish()
    }

    /// Forgets all but the first `count` row groups.
    pub fn truncate(&mut self, count: usize, provenance: &Provenance) -> Result<(), StoreError> {
        self.groups.truncate(count);
        // A record that is at the end of the file goes with what follows.
        self.record(provenance)?;
        let cut = self.sink.file.set_len(self.end());
        cut.map_err(|source| self.sink.failed(source))
    }

    /// Keeps all row groups for a later run, with the record at the end: one file is left. One that has got its name is complete,
    /// and stays as it is.
    pub fn close(&self, provenance: &Provenance) -> Result<(), StoreError> {
        if !is_at(&self.sink.file, &self.path).map_err(|source| self.sink.failed(source))? {
            return Ok(());
        }
        let record = self.record_bytes(provenance)?;
        let cut = self.sink.file.set_len(self.end());
        cut.map_err(|source| self.sink.failed(source))?;
        self.sink.write_bytes(self.end(), &record)?;
        self.sink
            .file
            .sync_all()
            .map_err(|source| self.sink.failed(source))?;
        remove_file(&Self::record_of(&self.path))
    }

    /// Copies some of the row groups into an embeddings file of their own, byte by byte.
    pub fn copy(
        &self,
        groups: Range<usize>,
        to: &Path,
        provenance: &Provenance,
    ) -> Result<(), StoreError> {
        let failed = StoreError::cannot_write(to);
        let mut file = AtomicFile::create(to)?;
        let mut copied = RowGroups::default();
        file.append(Format::Parquet.magic())?;
        for group in &self.groups.all()[groups] {
            self.segments(group, |bytes| file.write_all(bytes))
                .map_err(failed)?;
            let group = group.clone().moved(copied.end());
            copied.push(group.map_err(|error| StoreError::encoding_parquet(to, error))?);
        }
        let footer = copied.footer(&self.encoder, provenance);
        let footer = footer.map_err(|error| StoreError::encoding_parquet(to, error))?;
        file.append(&footer)?;
        file.finish()
    }

    /// Completes the file and gives it the name that `claim` stands for, by renaming where both are on one file system.
    pub fn publish(
        &self,
        provenance: &Provenance,
        claim: AtomicFile,
    ) -> Result<FileSummary, StoreError> {
        let footer = self.groups.footer(&self.encoder, provenance);
        let footer =
            footer.map_err(|error| StoreError::encoding_parquet(&self.sink.named, error))?;
        let cut = self.sink.file.set_len(self.end());
        cut.map_err(|source| self.sink.failed(source))?;
        self.sink.write_bytes(self.end(), &footer)?;
        claim.finish_as(&self.sink.file, &self.path)?;
        Ok(FileSummary {
            digest: self.rows(),
            bytes: self.end() + footer.len() as u64,
        })
    }

    fn record_bytes(&self, provenance: &Provenance) -> Result<Vec<u8>, StoreError> {
        let groups = self.groups.all().iter();
        let rows: Vec<_> = groups.map(|group| group.rows.to_string()).collect();
        let provenance = provenance.clone().with(ROW_GROUPS, rows);
        let record = self.groups.footer(&self.encoder, &provenance);
        record.map_err(|error| StoreError::encoding_parquet(&self.path, error))
    }
}

fn encoder(path: &Path, layout: &EmbeddingLayout) -> Result<RowGroupEncoder, StoreError> {
    RowGroupEncoder::new(layout).map_err(|error| StoreError::encoding_parquet(path, error))
}

/// Whether a record is at the end of the file.
fn is_closed(file: &File) -> io::Result<bool> {
    let magic = Format::Parquet.magic();
    let mut end = vec![0; magic.len()];
    let start = file.metadata()?.len().checked_sub(magic.len() as u64);
    // A file that was just begun has the magic string in front.
    let Some(start) = start.filter(|&start| start > 0) else {
        return Ok(false);
    };
    file.read_exact_at(&mut end, start)?;
    Ok(end == magic)
}

/// The row groups of a record, and the provenance.
fn recorded(file: &VerifiedFile) -> Result<(RowGroups, Provenance), StoreError> {
    let path = file.path();
    let malformed = |what: &str| StoreError::malformed(path, what);
    let broken =
        |error: ParquetError| file.failed(|path| StoreError::decoding_parquet(path, &error));
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        // As they were written, so that they can be written again.
        .with_metadata_options(Some(
            ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false),
        ))
        .parse_and_finish(file)
        .map_err(broken)?;
    let about = metadata.file_metadata();
    let (mut provenance, _) = Provenance::open(&entries(about), Kind::Embeddings)
        .map_err(|error| StoreError::metadata(path, &error))?;
    let rows = provenance.options.remove(ROW_GROUPS).unwrap_or_default();
    let rows: Vec<String> =
        serde_json::from_value(rows).map_err(|_| malformed("no record of row groups"))?;
    if rows.len() != metadata.num_row_groups() {
        return Err(malformed("its record is of other row groups"));
    }
    let mut groups = RowGroups::default();
    for (number, (group, rows)) in metadata.row_groups().iter().zip(rows).enumerate() {
        let start = groups.end();
        let index = metadata.page_index_for_row_group(number);
        let columns = 0..group.num_columns();
        groups.push(PlacedRowGroup {
            start,
            segments: file.segments(start..start + size(group)).to_vec(),
            rows: rows.parse().map_err(|()| malformed("no digest of rows"))?,
            described: Described {
                group: as_written(group).map_err(broken)?,
                column_indexes: columns
                    .clone()
                    .map(|at| index.column_index(at).cloned())
                    .collect(),
                offset_indexes: columns.map(|at| index.offset_index(at).cloned()).collect(),
            },
        });
    }
    Ok((groups, provenance))
}

/// A row group that was read, described as when it was written: the writer gives the smallest and the largest of signed numbers in
/// the fields of old readers as well, and the reader does not say that it saw those.
fn as_written(group: &RowGroupMetaData) -> Result<RowGroupMetaData, ParquetError> {
    let columns = group.columns().iter().map(|column| {
        let Some(Statistics::Int64(signed)) = column.statistics() else {
            return Ok(column.clone());
        };
        let signed = signed.clone().with_backwards_compatible_min_max(true);
        let column = column.clone().into_builder();
        column.set_statistics(Statistics::Int64(signed)).build()
    });
    let columns: Result<_, ParquetError> = columns.collect();
    group
        .clone()
        .into_builder()
        .set_column_metadata(columns?)
        .build()
}

/// Bytes of a row group.
fn size(group: &RowGroupMetaData) -> u64 {
    let columns = group.columns().iter();
    let sizes = columns.map(|column| {
        let filter = bloom_filter(column).map_or(0, |range| range.end - range.start);
        column.byte_range().1 + filter
    });
    sizes.sum()
}

#[cfg(test)]
mod tests;
