//! Shard files.

mod reader;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, StringArray, UInt8Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use parquet::errors::ParquetError;
use parquet::file::properties::EnabledStatistics;
use plmkit_contract::{
    DESCRIPTION, KeyColumns, Kind, Labels, Provenance, RowDigest, RowsBuilder, SAMPLE,
    SequenceDigest, ShardRow, batches_schema, shard_schema, tokenize,
};
use plmkit_kit::Quoted;

use crate::packed_group::PackedGroup;
use crate::parquet::{ParquetFile, ParquetReader, properties_of_records};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::{FIRST_ROW_GROUP, RowGroup, RowGroupEncoder};
use crate::{AtomicFile, StoreError};

pub use reader::ShardReader;

/// The most bytes of ids and descriptions that are packed together. The offsets of their columns are i32.
const MOST_HEADER_BYTES: usize = 1 << 30;

/// Writes a shard that is one of many: the rows of a row group wait elsewhere.
///
/// Its bytes depend only on the rows of its row groups.
pub struct ShardWriter {
    writer: ParquetWriter,
    groups: Vec<PackedGroup>,
}

impl ShardWriter {
    /// Starts a shard that will be at `path`. Its row groups come from [`encode_rows`] with this `encoder`.
    pub fn with_encoder(path: &Path, encoder: Arc<RowGroupEncoder>) -> Result<Self, StoreError> {
        let mut writer = ParquetWriter::create(path, encoder)?;
        writer.file.suspend()?;
        Ok(Self {
            writer,
            groups: Vec::new(),
        })
    }

    /// Adds a row group. The file descriptor is closed until the next one: there may be thousands of shards.
    pub fn append(&mut self, group: &RowGroup) -> Result<(), StoreError> {
        let end = self.groups.last().map_or(FIRST_ROW_GROUP, PackedGroup::end);
        let placed = self.writer.write(group, end)?;
        let packed = PackedGroup::new(placed, &self.writer.encoder);
        let packed = packed.map_err(|error| self.writer.encoding(error))?;
        self.groups.push(packed);
        self.writer.file.suspend()
    }

    /// Writes the footer. Returns the digest of all rows, and the file, which is not published.
    pub fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<(RowDigest, AtomicFile), StoreError> {
        for group in self.groups {
            let group = group.unpack(&self.writer.encoder);
            let group = group.map_err(|error| self.writer.encoding(error))?;
            self.writer.groups.push(group);
        }
        self.writer.finish(provenance)
    }
}

/// Makes an encoder for shards. Errors name `path`.
pub fn shard_encoder(path: &Path) -> Result<RowGroupEncoder, StoreError> {
    // Row groups are read whole, so that an index of their pages would only make a set of many shards larger.
    // A row group ends with a protein, whatever the number of its windows.
    let properties = properties_of_records()
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    RowGroupEncoder::new(path, Kind::Shard, shard_schema(), properties.build())
}

/// Encodes rows as a row group of the shard at `path`. Computes their digests.
pub fn encode_rows(
    path: &Path,
    rows: &RecordBatch,
    encoder: &RowGroupEncoder,
) -> Result<RowGroup, StoreError> {
    let digests = SequenceDigest::column(rows["sequence"].as_string());
    let columns = rows.schema_ref().fields().iter().zip(rows.columns());
    let columns = columns.map(|(field, column)| match field.name().as_str() {
        "sequence_digest" => Arc::clone(&digests),
        _ => Arc::clone(column),
    });
    let rows = RecordBatch::try_new(rows.schema(), columns.collect());
    let group = rows.map_err(ParquetError::from);
    let group = group.and_then(|rows| encoder.encode(&[rows]));
    group.map_err(|error| StoreError::encoding_parquet(path, error))
}

/// Returns the bytes that a row adds to a row group, before compression.
pub fn row_bytes(row: &ShardRow) -> usize {
    // Ordinal, length, start, truncated, digest.
    const FIXED_COLUMNS: usize = 8 + 4 + 4 + 1 + 32;
    let texts = row.key.id.len() + row.description.map_or(0, str::len) + row.sequence.len();
    FIXED_COLUMNS + texts
}

/// A verified shard in memory.
#[derive(Clone, Debug)]
pub struct Shard {
    path: PathBuf,
    /// The rows in file order, with the columns of [`shard_schema`].
    pub batches: Vec<RecordBatch>,
    pub provenance: Provenance,
    pub digest: RowDigest,
}

/// Reads a whole shard and verifies it.
pub fn read_shard(path: &Path) -> Result<Shard, StoreError> {
    let mut reader = open(path)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    Ok(Shard {
        path: path.to_owned(),
        batches,
        provenance: reader.provenance().clone(),
        digest: reader.digest(),
    })
}

fn open(path: &Path) -> Result<ParquetReader<()>, StoreError> {
    let opened = ParquetFile::of_kind(path, Kind::Shard);
    ParquetReader::new(opened.map_err(|error| error.of_input(Kind::Shard))?)
}

impl Shard {
    /// Returns its rows, numbered from 0.
    pub fn rows(&self) -> ShardRows<'_> {
        ShardRows::new(0, self.batches.iter())
    }

    /// Makes the record batch of a batch of rows. The offsets of `tokens` are `cu_seqlens`, its values the packed token ids.
    pub fn pack<'a>(
        &self,
        rows: impl Iterator<Item = ShardRow<'a>>,
        labels: Labels,
    ) -> Result<RecordBatch, StoreError> {
        pack(rows, labels, &self.provenance, &self.path)
    }
}

/// Makes the record batch of a batch of rows of the shard at `path`.
fn pack<'a>(
    rows: impl Iterator<Item = ShardRow<'a>>,
    labels: Labels,
    provenance: &Provenance,
    path: &Path,
) -> Result<RecordBatch, StoreError> {
    let mut keys = RowsBuilder::of_keys();
    let mut descriptions = Vec::new();
    let mut tokens = Vec::new(); // (total_tokens)
    let mut cu_seqlens = vec![0]; // (sequences + 1)
    let mut header_bytes = 0;
    for row in rows {
        let failed = |what: &dyn std::fmt::Display| {
            let (ordinal, id) = (row.key.ordinal, Quoted(row.key.id));
            let what = format_args!("ordinal {ordinal} {id}: {what}");
            StoreError::malformed(path, what)
        };
        tokenize(row.sequence.as_bytes(), &mut tokens).map_err(|error| failed(&error))?;
        header_bytes += row.key.id.len();
        if labels.description {
            header_bytes += row.description.map_or(0, str::len);
            descriptions.push(row.description);
        }
        if header_bytes > MOST_HEADER_BYTES {
            return Err(too_long_headers(path));
        }
        let limit = format_args!("expected at most {} tokens in a batch", i32::MAX);
        cu_seqlens.push(i32::try_from(tokens.len()).map_err(|_| failed(&limit))?);
        keys.push(&row.key);
    }
    let sequences = cu_seqlens.len() - 1;
    let mut columns = keys.finish();
    if labels.sample {
        let sample = provenance.text_option(SAMPLE).unwrap_or_default();
        columns.push(Arc::new(StringArray::from(vec![sample; sequences])));
    }
    if labels.description {
        columns.push(Arc::new(StringArray::from(descriptions)));
    }
    columns.push(token_lists(tokens, cu_seqlens));
    let batch = RecordBatch::try_new(batches_schema(labels), columns);
    batch.map_err(|error| StoreError::encoding_arrow(path, error))
}

/// Makes the error of rows that have too many bytes of ids and descriptions to be packed together.
fn too_long_headers(path: &Path) -> StoreError {
    let what = format_args!(
        "expected at most {MOST_HEADER_BYTES} bytes of ids and descriptions in sequences that are packed together, found more; a smaller --max-batch-tokens or no --description takes less"
    );
    StoreError::malformed(path, what)
}

/// Makes a `List<UInt8>` array with one list of token ids per sequence.
fn token_lists(tokens: Vec<u8>, cu_seqlens: Vec<i32>) -> ArrayRef {
    Arc::new(ListArray::new(
        Arc::new(Field::new_list_field(DataType::UInt8, false)),
        OffsetBuffer::new(cu_seqlens.into()),
        Arc::new(UInt8Array::from(tokens)),
        None,
    ))
}

/// The rows of adjacent record batches of a shard, numbered as in the shard.
pub struct ShardRows<'a> {
    batches: Vec<RowsOfBatch<'a>>,
    numbers: Range<usize>,
}

/// The rows of one record batch.
struct RowsOfBatch<'a> {
    /// The number of its first row.
    first: usize,
    keys: KeyColumns<'a>,
    descriptions: &'a StringArray,
    sequences: &'a StringArray,
}

impl<'a> ShardRows<'a> {
    /// Numbers the rows of `batches` from `first` on.
    fn new(first: usize, batches: impl Iterator<Item = &'a RecordBatch>) -> Self {
        let mut end = first;
        let batches = batches.map(|batch| {
            let first = end;
            end += batch.num_rows();
            RowsOfBatch {
                first,
                keys: KeyColumns::new(batch),
                descriptions: batch[DESCRIPTION].as_string(),
                sequences: batch["sequence"].as_string(),
            }
        });
        Self {
            batches: batches.collect(),
            numbers: first..end,
        }
    }

    /// Returns row `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn get(&self, row: usize) -> ShardRow<'a> {
        let batch = self.batches.partition_point(|batch| batch.first <= row) - 1;
        let batch = &self.batches[batch];
        let row = row - batch.first;
        let has_description = batch.descriptions.is_valid(row);
        ShardRow {
            key: batch.keys.row(row),
            description: has_description.then(|| batch.descriptions.value(row)),
            sequence: batch.sequences.value(row),
        }
    }

    /// Iterates over all rows in file order.
    pub fn iter(&self) -> impl Iterator<Item = ShardRow<'a>> {
        self.numbers.clone().map(|row| self.get(row))
    }
}

#[cfg(test)]
mod tests;
