//! Embeddings files.

use std::path::Path;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use plmkit_contract::{
    EmbeddingLayout, Kind, Provenance, RowDigest, SequenceDigest, Stop, StoreDtype, ordinals,
};

use crate::checksums::{Checksums, Format};
use crate::footer_writer::RowGroups;
use crate::parquet::{Reader, properties};
use crate::row_group::{ROW_GROUP_BYTES, ROW_GROUP_ROWS, RowGroupEncoder};
use crate::{AtomicFile, EmbeddingsFile, FileSummary, StoreError};

/// The bytes that are copied at once.
const COPIED_BYTES: u64 = 1 << 20;

/// The false positive rate of the bloom filters of ids, which take about a byte for each id.
const ID_FALSE_POSITIVES: f64 = 0.02;

/// Writes an embeddings file.
pub struct EmbeddingsWriter {
    file: AtomicFile,
    encoder: RowGroupEncoder,
    groups: RowGroups,
    /// The rows of the next row groups, and the bytes of their values.
    rows: Vec<RecordBatch>,
    bytes: usize,
    count: usize,
}

impl EmbeddingsWriter {
    /// Starts a file that will be at `path`, with the columns of `layout`.
    pub fn create(path: &Path, layout: &EmbeddingLayout) -> Result<Self, StoreError> {
        let encoder = RowGroupEncoder::new(layout);
        let mut writer = Self {
            encoder: encoder.map_err(|error| StoreError::encoding_parquet(path, error))?,
            file: AtomicFile::create(path)?,
            groups: RowGroups::default(),
            rows: Vec::new(),
            bytes: 0,
            count: 0,
        };
        writer.file.append(Format::Parquet.magic())?;
        Ok(writer)
    }

    /// Returns the columns that [`write`](Self::write) takes.
    pub fn schema(&self) -> &SchemaRef {
        self.encoder.schema()
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        self.bytes += self.encoder.bytes(batch);
        self.count += batch.num_rows();
        self.rows.push(batch.clone());
        if self.bytes >= ROW_GROUP_BYTES || self.count >= ROW_GROUP_ROWS {
            self.end_row_groups()?;
        }
        Ok(())
    }

    /// Returns how full the next row group is, from 0 to 1.
    pub fn fullness(&self) -> f64 {
        let [bytes, rows] = [(self.bytes, ROW_GROUP_BYTES), (self.count, ROW_GROUP_ROWS)]
            .map(|(count, full)| count as f64 / full as f64);
        bytes.max(rows)
    }

    /// Returns the number of finished row groups.
    pub fn row_groups(&self) -> usize {
        self.groups.0.len()
    }

    /// Adds a row group of another file with the same columns. Its bytes are verified and copied, not decoded, so its rows are missing in
    /// the digest of the file: [`add_digest`](Self::add_digest) adds them.
    pub fn copy(&mut self, from: &EmbeddingsFile, group: usize) -> Result<(), StoreError> {
        self.end_row_groups()?;
        let mut placed = from.placed(group)?;
        let end = placed.end();
        let filters = placed.bloom_filters().unwrap_or(end);
        let mut sums = Checksums::default();
        for mut range in [placed.start..filters, filters..end] {
            while !range.is_empty() {
                let step = range.start..range.end.min(range.start + COPIED_BYTES);
                let bytes = from.file().read(step.clone())?;
                sums.update(&bytes);
                self.file.append(&bytes)?;
                range.start = step.end;
            }
            sums.end_segment();
        }
        placed = placed
            .moved(self.groups.end())
            .map_err(|error| self.encoding(error))?;
        placed.segments = sums.into_segments();
        self.groups.push(placed);
        Ok(())
    }

    /// Adds the digest of rows that were copied.
    pub fn add_digest(&mut self, rows: RowDigest) {
        if let Some(group) = self.groups.0.last_mut() {
            group.rows = [group.rows, rows].into_iter().sum();
        }
    }

    fn end_row_groups(&mut self) -> Result<(), StoreError> {
        (self.bytes, self.count) = (0, 0);
        for rows in self.encoder.cut(std::mem::take(&mut self.rows).iter()) {
            let group = self.encoder.encode(&rows);
            let group = group.map_err(|error| self.encoding(error))?;
            let placed = group.append_to(&mut self.file, self.groups.end())?;
            self.groups.push(placed);
        }
        Ok(())
    }

    /// Writes the footer and publishes the file.
    pub fn finish(mut self, provenance: &Provenance) -> Result<FileSummary, StoreError> {
        self.end_row_groups()?;
        let path = self.file.path();
        let footer = self.groups.footer(&self.encoder, provenance, path)?;
        self.file.append(&footer)?;
        let summary = FileSummary {
            digest: self.groups.rows(),
            bytes: self.file.written(),
        };
        self.file.finish()?;
        Ok(summary)
    }

    fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(self.file.path(), error)
    }
}

/// Returns the encodings of the columns that are not lists.
pub(crate) fn writer_properties(layout: &EmbeddingLayout) -> WriterProperties {
    let values = match layout.dtype {
        // Adjacent exponents compress well.
        StoreDtype::F32 => Encoding::BYTE_STREAM_SPLIT,
        // DuckDB cannot read half precision with BYTE_STREAM_SPLIT, which the format allowed later.
        StoreDtype::F16 => Encoding::PLAIN,
    };
    let mut properties = properties()
        .set_column_encoding(ColumnPath::from("ordinal"), Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(ColumnPath::from("id"), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_column_statistics_enabled(ColumnPath::from("sequence_digest"), EnabledStatistics::None)
        // Ids are not sorted: without the filter, a reader would search every row group.
        .set_column_bloom_filter_fpp(ColumnPath::from("id"), ID_FALSE_POSITIVES);
    for column in &layout.columns {
        let path = [column.to_string(), "list".to_owned(), "item".to_owned()];
        let path = ColumnPath::new(path.to_vec());
        properties = properties
            .set_column_encoding(path.clone(), values)
            .set_column_statistics_enabled(path, EnabledStatistics::None);
    }
    properties.build()
}

/// Reads an embeddings file batch by batch. Returned rows are verified. The whole file is verified once
/// [`next_batch`](EmbeddingsReader::next_batch) returns `Ok(None)`.
pub struct EmbeddingsReader {
    reader: Reader,
    layout: EmbeddingLayout,
}

impl EmbeddingsReader {
    /// Opens a file and checks its columns and its provenance.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let (reader, layout) = Reader::open(path, Kind::Embeddings, EmbeddingLayout::from_schema)?;
        Ok(Self { reader, layout })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.reader.file.path()
    }

    /// Returns all columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.reader.schema
    }

    /// Returns the layout of the columns.
    pub fn layout(&self) -> &EmbeddingLayout {
        &self.layout
    }

    /// Returns the provenance of the file.
    pub fn provenance(&self) -> &Provenance {
        &self.reader.provenance
    }

    /// Returns the digest of all rows from the metadata, with their number.
    pub fn digest(&self) -> RowDigest {
        self.reader.digest
    }

    /// Reads the next rows. Returns `None` after the last, when every byte of the file is verified.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        self.reader.next_batch()
    }

    /// Verifies the bytes that were not read. Polls `stop` between segments.
    pub fn verify(&self, stop: &Stop) -> Result<(), StoreError> {
        self.reader.file.verify_rest(stop)
    }
}

/// Reads the ordinals and the sequence digests of an embeddings file, and nothing else of its rows. Only these bytes are verified.
pub struct EmbeddingsKeys(Reader);

impl EmbeddingsKeys {
    /// Opens a file and checks its columns and its provenance.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let columns = Some(["ordinal", "sequence_digest"].as_slice());
        let parse = EmbeddingLayout::from_schema;
        let (reader, _) = Reader::open_columns(path, Kind::Embeddings, parse, columns)?;
        Ok(Self(reader))
    }

    /// Returns the digest of all rows from the metadata, with their number.
    pub fn digest(&self) -> RowDigest {
        self.0.digest
    }

    /// Reads the ordinals and digests of the next rows. Returns `None` after the last.
    pub fn next_rows(&mut self) -> Result<Option<Vec<(u64, SequenceDigest)>>, StoreError> {
        let Some(batch) = self.0.next_batch()? else {
            return Ok(None);
        };
        let digests = batch["sequence_digest"].as_string::<i32>().iter();
        // A verified file holds no other text.
        let digests = digests.map(|text| text.and_then(|text| text.parse().ok()));
        let rows = ordinals(&batch)
            .iter()
            .copied()
            .zip(digests.map(Option::unwrap_or_default));
        Ok(Some(rows.collect()))
    }
}
