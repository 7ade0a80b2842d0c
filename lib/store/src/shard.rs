//! Shard files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, StringArray, StringBuilder, UInt8Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use plmkit_contract::{
    DESCRIPTION, KeyColumns, KeyColumnsBuilder, Kind, Labels, Provenance, Quoted, RowDigest,
    SAMPLE, ShardRow, batches_schema, check_columns, shard_schema, tokenize,
};

use crate::checksums::{ChecksumWriter, Format};
use crate::parquet::{Reader, properties};
use crate::{AtomicFile, FileSummary, Finished, StoreError};

/// Writes a shard.
///
/// Its bytes depend only on the rows and on `row_group_bytes`.
pub struct ShardWriter {
    writer: ArrowWriter<ChecksumWriter<AtomicFile>>,
    digest: RowDigest,
    keys: KeyColumnsBuilder,
    descriptions: StringBuilder,
    sequences: StringBuilder,
    /// Bytes of the rows that are not in a record batch yet.
    bytes: usize,
    row_group_bytes: usize,
}

impl ShardWriter {
    /// Starts a shard that will be at `path`. Keeps about `row_group_bytes` in memory.
    pub fn create(path: &Path, row_group_bytes: usize) -> Result<Self, StoreError> {
        let file = ChecksumWriter::new(AtomicFile::create(path)?);
        let writer = ArrowWriter::try_new(file, shard_schema(), Some(shard_properties()));
        let mut shard = Self {
            writer: writer.map_err(|error| StoreError::encoding_parquet(path, error))?,
            digest: RowDigest::default(),
            keys: KeyColumnsBuilder::default(),
            descriptions: StringBuilder::new(),
            sequences: StringBuilder::new(),
            bytes: 0,
            row_group_bytes,
        };
        shard.end_row_group()?;
        Ok(shard)
    }

    fn path(&self) -> &Path {
        self.writer.inner().inner().path()
    }

    fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(self.path(), error)
    }

    /// Adds a row.
    pub fn push(&mut self, row: &ShardRow<'_>) -> Result<(), StoreError> {
        const FIXED_COLUMNS: usize = 8 + 4 + 4 + 1 + 32;
        self.keys.push(&row.key);
        self.descriptions.append_option(row.description);
        self.sequences.append_value(row.sequence);
        let description = row.description.map_or(0, str::len);
        self.bytes += FIXED_COLUMNS + row.key.id.len() + description + row.sequence.len();
        if self.bytes >= (self.row_group_bytes / 8).clamp(1 << 12, 1 << 20) {
            self.end_batch()?;
        }
        Ok(())
    }

    /// Encodes the buffered rows.
    fn end_batch(&mut self) -> Result<(), StoreError> {
        self.bytes = 0;
        let [ordinal, id, start, length, truncated, digest] = self.keys.finish();
        let description = Arc::new(self.descriptions.finish());
        let sequence = Arc::new(self.sequences.finish());
        let columns = vec![
            ordinal,
            id,
            description,
            sequence,
            length,
            start,
            truncated,
            digest,
        ];
        let batch = RecordBatch::try_new(shard_schema(), columns);
        let batch = batch.map_err(|error| StoreError::encoding_arrow(self.path(), error))?;
        let digested = self.digest.update(&batch);
        digested.map_err(|error| StoreError::malformed(self.path(), error))?;
        let written = self.writer.write(&batch);
        written.map_err(|error| self.encoding(error))?;
        if self.writer.memory_size() >= self.row_group_bytes {
            self.end_row_group()?;
        }
        Ok(())
    }

    /// Ends the row group and closes the file descriptor until the next one: there may be thousands of shards.
    fn end_row_group(&mut self) -> Result<(), StoreError> {
        let ended = self.writer.flush();
        let ended = ended.and_then(|()| Ok(self.writer.inner_mut().inner_mut().suspend()?));
        ended.map_err(|error| self.encoding(error))
    }

    /// Frees the memory and the file descriptor. Call it after the last row, if [`finish`](Self::finish) comes later.
    pub fn suspend(&mut self) -> Result<(), StoreError> {
        self.end_batch()?;
        self.end_row_group()
    }

    /// Writes the remaining rows and the footer.
    pub fn finish(mut self, provenance: &Provenance) -> Result<Finished<FileSummary>, StoreError> {
        self.end_batch()?;
        let path = self.path().to_owned();
        for (key, value) in provenance.entries(Kind::Shard, self.digest) {
            let entry = KeyValue::new(key, value);
            self.writer.append_key_value_metadata(entry);
        }
        let encoding = |error| StoreError::encoding_parquet(&path, error);
        self.writer.flush().map_err(encoding)?;
        self.writer.inner_mut().begin_end();
        let file = self.writer.into_inner().map_err(encoding)?;
        let file = file.finish(Format::Parquet).and_then(|mut file| {
            file.suspend()?;
            Ok(file)
        });
        let file = file.map_err(StoreError::cannot_write(&path))?;
        let summary = FileSummary {
            digest: self.digest,
            bytes: file.written(),
        };
        Ok(Finished::new(file, summary))
    }
}

fn shard_properties() -> WriterProperties {
    let mut properties = properties();
    for (column, encoding) in [
        ("ordinal", Encoding::DELTA_BINARY_PACKED),
        ("id", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("description", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("sequence", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("length", Encoding::DELTA_BINARY_PACKED),
        ("start", Encoding::DELTA_BINARY_PACKED),
    ] {
        properties = properties.set_column_encoding(ColumnPath::from(column), encoding);
    }
    for column in ["description", "sequence", "sequence_digest"] {
        // No reader can skip rows by the minima and maxima of these columns.
        properties = properties
            .set_column_statistics_enabled(ColumnPath::from(column), EnabledStatistics::None);
    }
    properties.build()
}

/// A verified shard in memory.
#[derive(Clone, Debug)]
pub struct Shard {
    path: PathBuf,
    /// The rows in file order, with the columns of [`shard_schema`].
    pub batches: Vec<RecordBatch>,
    /// Their provenance.
    pub provenance: Provenance,
    /// Their digest.
    pub digest: RowDigest,
}

/// Reads a whole shard and verifies it.
pub fn read_shard(path: &Path) -> Result<Shard, StoreError> {
    let check_schema = |schema: &Schema| check_columns(schema, &shard_schema());
    let (mut reader, ()) = Reader::open(path, Kind::Shard, check_schema)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    Ok(Shard {
        path: path.to_owned(),
        batches,
        provenance: reader.provenance,
        digest: reader.digest,
    })
}

impl Shard {
    /// Returns its rows, numbered from 0.
    pub fn rows(&self) -> ShardRows<'_> {
        let mut rows = ShardRows {
            batches: Vec::new(),
            len: 0,
        };
        for batch in &self.batches {
            rows.batches.push(RowsOfBatch {
                first: rows.len,
                keys: KeyColumns::new(batch),
                descriptions: batch[DESCRIPTION].as_string(),
                sequences: batch["sequence"].as_string(),
            });
            rows.len += batch.num_rows();
        }
        rows
    }

    /// Makes the record batch of a batch of rows. The offsets of `tokens` are `cu_seqlens`, its values the packed token ids.
    pub fn pack<'a>(
        &self,
        rows: impl Iterator<Item = ShardRow<'a>>,
        labels: Labels,
    ) -> Result<RecordBatch, StoreError> {
        let mut keys = KeyColumnsBuilder::default();
        let mut descriptions = StringBuilder::new();
        let mut tokens = Vec::new(); // (total_tokens)
        let mut cu_seqlens = vec![0]; // (sequences + 1)
        for row in rows {
            let failed = |what: &dyn std::fmt::Display| {
                let (ordinal, id) = (row.key.ordinal, Quoted(row.key.id));
                let what = format_args!("ordinal {ordinal} {id}: {what}");
                StoreError::malformed(&self.path, what)
            };
            tokenize(row.sequence.as_bytes(), &mut tokens).map_err(|error| failed(&error))?;
            let limit = format_args!("expected at most {} tokens in a batch", i32::MAX);
            cu_seqlens.push(i32::try_from(tokens.len()).map_err(|_| failed(&limit))?);
            keys.push(&row.key);
            descriptions.append_option(row.description);
        }
        let sequences = cu_seqlens.len() - 1;
        let mut columns = Vec::from(keys.finish());
        if labels.sample {
            let sample = self.provenance.text_option(SAMPLE).unwrap_or_default();
            columns.push(Arc::new(StringArray::from(vec![sample; sequences])));
        }
        if labels.description {
            columns.push(Arc::new(descriptions.finish()));
        }
        columns.push(token_lists(tokens, cu_seqlens));
        let batch = RecordBatch::try_new(batches_schema(labels), columns);
        batch.map_err(|error: ArrowError| StoreError::encoding_arrow(&self.path, error))
    }
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

/// The rows of a shard, numbered from 0 across its record batches.
pub struct ShardRows<'a> {
    batches: Vec<RowsOfBatch<'a>>,
    len: usize,
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
        (0..self.len).map(|row| self.get(row))
    }
}

#[cfg(test)]
mod tests;
