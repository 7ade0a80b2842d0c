//! Lists of records in Parquet beside shards: `aliases.parquet`, `known.parquet`, `peptides.parquet`.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use plmkit_contract::{Kind, Provenance};

use crate::parquet::{ParquetFile, ParquetReader};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::RowGroupEncoder;
use crate::{FileSummary, Finished, StoreError};

/// The most rows of a row group.
pub(crate) const ROWS: usize = 1 << 16;
/// A row group ends with the row in which its texts reach this many bytes.
const TEXT_BYTES: usize = 1 << 26;

/// The rows of a row group while they are gathered.
pub(crate) trait ListRows: Default {
    /// Returns the number of rows, and the bytes of their texts.
    fn size(&self) -> (usize, usize);

    /// Returns the columns of a list of this kind.
    fn columns(self, kind: Kind) -> Vec<ArrayRef>;
}

/// Writes a list. Its bytes depend only on its rows.
pub(crate) struct RecordListWriter<R> {
    writer: ParquetWriter,
    rows: R,
}

impl<R: ListRows> RecordListWriter<R> {
    pub(crate) fn create(
        path: &Path,
        kind: Kind,
        schema: SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self, StoreError> {
        let encoder = RowGroupEncoder::new(path, kind, schema, properties)?;
        Ok(Self {
            writer: ParquetWriter::create(path, Arc::new(encoder))?,
            rows: R::default(),
        })
    }

    /// Adds a row: `push` gathers it.
    pub(crate) fn push(&mut self, push: impl FnOnce(&mut R)) -> Result<(), StoreError> {
        push(&mut self.rows);
        let (rows, text) = self.rows.size();
        if rows == ROWS || text >= TEXT_BYTES {
            self.end_row_group()?;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), StoreError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.size().0 == 0 {
            return Ok(());
        }
        let encoder = &self.writer.encoder;
        let columns = rows.columns(encoder.kind());
        let batch = RecordBatch::try_new(Arc::clone(encoder.schema()), columns);
        let batch = batch.map_err(|error| self.writer.encoding(ParquetError::from(error)))?;
        self.writer.push(&[batch])
    }

    /// Writes the remaining rows and the footer.
    pub(crate) fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<Finished<FileSummary>, StoreError> {
        self.end_row_group()?;
        self.writer.finish(provenance)
    }
}

/// Reads a list; [`AliasColumns`](plmkit_contract::AliasColumns) and [`PeptideColumns`](plmkit_contract::PeptideColumns) have the
/// rows of a batch.
pub type RecordListReader = ParquetReader<()>;

impl RecordListReader {
    /// Opens a list of this kind, and checks its columns and its provenance.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        Self::new(ParquetFile::of_kind(path, kind)?, None)
    }
}
