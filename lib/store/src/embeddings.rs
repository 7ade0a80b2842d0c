//! Embeddings files.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::basic::Encoding;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use plmkit_contract::{EmbeddingLayout, Kind, Provenance, RowDigest, StoreDtype};

use crate::parquet::{ParquetReader, properties};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::{ROW_GROUP_BYTES, ROW_GROUP_ROWS, RowGroupEncoder};
use crate::{EmbeddingsFile, StoreError};

/// The false positive rate of the bloom filters of ids, which take about a byte for each id.
const ID_FALSE_POSITIVES: f64 = 0.02;

/// Writes an embeddings file.
pub struct EmbeddingsWriter {
    writer: ParquetWriter,
    /// The rows of the next row groups, and the bytes of their values.
    rows: Vec<RecordBatch>,
    bytes: usize,
    count: usize,
}

impl EmbeddingsWriter {
    /// Starts a file that will be at `path`, with the columns of `layout`.
    pub fn create(path: &Path, layout: &EmbeddingLayout) -> Result<Self, StoreError> {
        let encoder = embeddings_encoder(path, layout)?;
        Ok(Self {
            writer: ParquetWriter::create(path, Arc::new(encoder))?,
            rows: Vec::new(),
            bytes: 0,
            count: 0,
        })
    }

    /// Returns the columns that [`write`](Self::write) takes.
    pub fn schema(&self) -> &SchemaRef {
        &self.writer.encoder.schema
    }

    /// Adds rows.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        self.bytes += self.writer.encoder.bytes(batch);
        self.count += batch.num_rows();
        self.rows.push(batch.clone());
        if self.bytes >= ROW_GROUP_BYTES || self.count >= ROW_GROUP_ROWS {
            self.end_row_groups()?;
        }
        Ok(())
    }

    /// Returns the number of finished row groups.
    pub fn row_groups(&self) -> usize {
        self.writer.groups.0.len()
    }

    fn end_row_groups(&mut self) -> Result<(), StoreError> {
        (self.bytes, self.count) = (0, 0);
        let rows = std::mem::take(&mut self.rows);
        let mut groups = self.writer.encoder.cut(rows.iter()).into_iter();
        groups.try_for_each(|rows| self.writer.push(&rows))
    }

    /// Writes the footer and publishes the file. Returns the digest of all rows.
    pub fn finish(mut self, provenance: &Provenance) -> Result<RowDigest, StoreError> {
        self.end_row_groups()?;
        let (digest, file) = self.writer.finish(provenance)?;
        file.finish()?;
        Ok(digest)
    }
}

/// Makes an encoder for embeddings files with the columns of `layout`. Errors name `path`.
pub(crate) fn embeddings_encoder(
    path: &Path,
    layout: &EmbeddingLayout,
) -> Result<RowGroupEncoder, StoreError> {
    let properties = properties_of(layout);
    RowGroupEncoder::new(path, Kind::Embeddings, layout.schema(), properties)
}

/// Returns the encodings of the columns that are not lists.
fn properties_of(layout: &EmbeddingLayout) -> WriterProperties {
    let values = match layout.dtype {
        // Adjacent exponents compress well.
        StoreDtype::F32 => Encoding::BYTE_STREAM_SPLIT,
        // DuckDB cannot read half precision with BYTE_STREAM_SPLIT, which the format allowed later.
        StoreDtype::F16 => Encoding::PLAIN,
    };
    // Texts are plain: fastparquet reads no other encoding, and the file is hardly larger.
    let encodings = [("ordinal", Encoding::DELTA_BINARY_PACKED)];
    let mut properties = properties(&encodings, &["sequence_digest"])
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

/// Reads an embeddings file.
pub type EmbeddingsReader = ParquetReader<EmbeddingLayout>;

impl EmbeddingsReader {
    /// Opens a file and checks its columns and its provenance.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::new(EmbeddingsFile::open(path)?)
    }
}
