//! Shard files.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, RecordBatch, StringBuilder, UInt32Builder,
};
use arrow::error::ArrowError;
use parquet::basic::Encoding;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use plmkit_contract::{Kind, Provenance, ShardRow, shard_schema};

use crate::parquet::{Finished, Reader, Table, Writer, properties, same_columns};
use crate::{FileSummary, StoreError};

/// Rows that are decoded at once.
const ROWS_PER_BATCH: usize = 1024;

/// A shard under construction.
///
/// Its bytes depend on the rows and on `row_group_bytes` only.
pub struct ShardWriter {
    writer: Writer,
    rows: Rows,
    batch_bytes: usize,
}

impl ShardWriter {
    /// Starts a shard that will be at `path` and keeps at most about `row_group_bytes` of it in memory.
    pub fn create(path: &Path, row_group_bytes: usize) -> Result<Self, StoreError> {
        let mut writer = Writer::create(
            path,
            Kind::Shard,
            shard_schema(),
            shard_properties(),
            row_group_bytes,
        )?;
        writer.suspend()?;
        Ok(Self {
            writer,
            rows: Rows::default(),
            batch_bytes: (row_group_bytes / 8).clamp(1 << 12, 1 << 20),
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: &ShardRow<'_>) -> Result<(), StoreError> {
        self.rows.push(row);
        if self.rows.bytes >= self.batch_bytes {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = self
            .rows
            .take()
            .map_err(|error| StoreError::encoding_arrow(self.writer.path(), error))?;
        self.writer.write(&batch)
    }

    /// No row will follow: frees the memory and the file descriptor, until [`finish`](Self::finish).
    pub fn suspend(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.writer.suspend()
    }

    /// Writes the rest and the footer. The file has its name only after [`FinishedShard::publish`], so that a
    /// set of shards can appear together.
    pub fn finish(mut self, provenance: &Provenance) -> Result<FinishedShard, StoreError> {
        self.flush()?;
        self.writer.finish(provenance).map(FinishedShard)
    }
}

/// A shard that is written but has not its name yet; dropped, it is removed.
#[must_use]
pub struct FinishedShard(Finished);

impl FinishedShard {
    /// What the file holds.
    pub fn summary(&self) -> FileSummary {
        self.0.summary
    }

    /// Gives the file its name.
    pub fn publish(self) -> Result<FileSummary, StoreError> {
        self.0.publish()
    }
}

/// Reads a whole shard and verifies it.
pub fn read_shard(path: &Path) -> Result<Table, StoreError> {
    Reader::open(path, Kind::Shard, ROWS_PER_BATCH, |schema| {
        same_columns(schema, &shard_schema())
    })?
    .into_table()
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
        // The smallest and the largest of these help no reader to skip anything.
        properties = properties
            .set_column_statistics_enabled(ColumnPath::from(column), EnabledStatistics::None);
    }
    properties.build()
}

/// Rows on their way into a record batch.
struct Rows {
    ordinal: Int64Builder,
    id: StringBuilder,
    description: StringBuilder,
    sequence: StringBuilder,
    length: UInt32Builder,
    start: UInt32Builder,
    truncated: BooleanBuilder,
    digest: StringBuilder,
    bytes: usize,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            ordinal: Int64Builder::new(),
            id: StringBuilder::new(),
            description: StringBuilder::new(),
            sequence: StringBuilder::new(),
            length: UInt32Builder::new(),
            start: UInt32Builder::new(),
            truncated: BooleanBuilder::new(),
            digest: StringBuilder::new(),
            bytes: 0,
        }
    }
}

impl Rows {
    fn push(&mut self, row: &ShardRow<'_>) {
        const FIXED_COLUMNS: usize = 8 + 4 + 4 + 1 + 32;
        self.ordinal.append_value(row.ordinal.cast_signed());
        self.id.append_value(row.id);
        self.description.append_option(row.description);
        self.sequence.append_value(row.sequence);
        self.length.append_value(row.length);
        self.start.append_value(row.start);
        self.truncated.append_value(row.truncated);
        self.digest.append_value(row.digest.to_string());
        self.bytes +=
            FIXED_COLUMNS + row.id.len() + row.description.map_or(0, str::len) + row.sequence.len();
    }

    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        self.bytes = 0;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.ordinal.finish()),
            Arc::new(self.id.finish()),
            Arc::new(self.description.finish()),
            Arc::new(self.sequence.finish()),
            Arc::new(self.length.finish()),
            Arc::new(self.start.finish()),
            Arc::new(self.truncated.finish()),
            Arc::new(self.digest.finish()),
        ];
        RecordBatch::try_new(shard_schema(), columns)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plmkit_contract::{Exit, Failure, SequenceDigest};

    use super::*;

    fn write(path: &Path, rows: usize) -> FileSummary {
        let mut writer = ShardWriter::create(path, 1 << 14).expect("create");
        let sequence = "MKVLA".repeat(40);
        for ordinal in 0..rows {
            let id = format!("p{ordinal}");
            let sequence = &sequence[..=ordinal % 150];
            let row = ShardRow {
                ordinal: ordinal as u64,
                id: &id,
                description: (ordinal % 3 == 0).then_some("a protein"),
                sequence,
                length: sequence.len() as u32,
                start: 0,
                truncated: false,
                digest: SequenceDigest::new(sequence.as_bytes()),
            };
            writer.push(&row).expect("push");
        }
        writer.suspend().expect("suspend");
        let provenance = Provenance::new("fasta-shard", vec![]).with("max_residues", 1022);
        writer
            .finish(&provenance)
            .expect("finish")
            .publish()
            .expect("publish")
    }

    #[test]
    fn rows_come_back() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("shard.parquet");
        let summary = write(&path, 5000);
        assert_eq!(summary.bytes, fs::metadata(&path).expect("metadata").len());
        let table = read_shard(&path).expect("read");
        assert_eq!(table.digest, summary.digest);
        assert_eq!(table.provenance.options["max_residues"], 1022);
        let ordinals: Vec<u64> = table
            .batches
            .iter()
            .flat_map(|batch| plmkit_contract::ordinals(batch).to_vec())
            .collect();
        assert_eq!(ordinals, (0..5000).collect::<Vec<u64>>());
        let again = folder.path().join("again.parquet");
        write(&again, 5000);
        assert!(
            fs::read(&path).expect("read") == fs::read(&again).expect("read"),
            "same rows, same bytes"
        );
    }

    #[test]
    fn no_rows_is_a_valid_shard() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("shard.parquet");
        write(&path, 0);
        assert_eq!(read_shard(&path).expect("read").digest.rows(), 0);
    }

    #[test]
    fn damage_is_never_read_as_a_value() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("shard.parquet");
        let expected = write(&path, 300).digest;
        let whole = fs::read(&path).expect("read");
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).expect("write");
            match read_shard(&path) {
                Ok(table) => assert_eq!(table.digest, expected, "byte {at}"),
                Err(error) => assert_eq!(error.exit(), Exit::Data, "byte {at}: {error}"),
            }
        }
        for end in (0..whole.len()).step_by(64) {
            fs::write(&path, &whole[..end]).expect("write");
            let error = read_shard(&path).expect_err("cut");
            assert_eq!(error.exit(), Exit::Data, "cut at {end}: {error}");
        }
    }
}
