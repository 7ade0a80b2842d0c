//! Lists of records in Parquet: shards, and `aliases.parquet`, `known.parquet`, `peptides.parquet` beside them.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use parquet::errors::ParquetError;
use plmkit_contract::{Kind, Provenance, aliases_schema, known_schema, peptides_schema};

use crate::parquet::{ParquetFile, ParquetReader, properties_of_records};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::RowGroupEncoder;
use crate::{FileSummary, Finished, StoreError, shard_encoder};

/// The most rows of a row group.
pub(crate) const ROWS: usize = 1 << 16;
/// A row group ends with the row in which its texts reach this many bytes.
const TEXT_BYTES: usize = 1 << 26;

/// The rows of a row group while they are gathered.
pub trait ListRows: Default {
    /// A row.
    type Row<'a>;

    /// Adds a row. Returns the bytes of its texts.
    fn push(&mut self, row: Self::Row<'_>) -> usize;

    /// Returns the columns of a list of this kind.
    fn columns(self, kind: Kind) -> Vec<ArrayRef>;
}

/// Writes a list. Its bytes depend only on its rows.
pub struct RecordListWriter<R> {
    writer: ParquetWriter,
    rows: R,
    count: usize,
    text_bytes: usize,
}

impl<R: ListRows> RecordListWriter<R> {
    /// Starts a list of this kind that will be at `path`.
    pub fn create(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        let encoder = |schema| {
            let properties = properties_of_records().build();
            RowGroupEncoder::new(path, kind, schema, properties)
        };
        let encoder = match kind {
            Kind::Shard => shard_encoder(path)?,
            Kind::Peptides => encoder(peptides_schema())?,
            Kind::Known => encoder(known_schema())?,
            _ => encoder(aliases_schema())?,
        };
        Ok(Self {
            writer: ParquetWriter::create(path, Arc::new(encoder))?,
            rows: R::default(),
            count: 0,
            text_bytes: 0,
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: R::Row<'_>) -> Result<(), StoreError> {
        self.text_bytes += self.rows.push(row);
        self.count += 1;
        if self.count == ROWS || self.text_bytes >= TEXT_BYTES {
            self.end_row_group()?;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), StoreError> {
        if self.count == 0 {
            return Ok(());
        }
        (self.count, self.text_bytes) = (0, 0);
        let encoder = &self.writer.encoder;
        let columns = std::mem::take(&mut self.rows).columns(encoder.kind);
        let batch = RecordBatch::try_new(Arc::clone(&encoder.schema), columns);
        let batch = batch.map_err(|error| self.writer.encoding(ParquetError::from(error)))?;
        self.writer.push(&[batch])
    }

    /// Writes the remaining rows and the footer.
    pub fn finish(mut self, provenance: &Provenance) -> Result<Finished<FileSummary>, StoreError> {
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
        let opened = ParquetFile::of_kind(path, kind);
        Self::new(opened.map_err(|error| error.of_input(kind))?, None)
    }
}
