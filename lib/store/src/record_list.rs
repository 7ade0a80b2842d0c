//! Lists of records in Parquet: shards, and `aliases.parquet`, `known.parquet`, `peptides.parquet` beside them.

use std::path::Path;
use std::sync::Arc;

use plmkit_contract::{Kind, Provenance, Row, RowDigest, RowsBuilder};

use crate::parquet::{ParquetFile, ParquetReader, properties_of_records};
use crate::parquet_writer::ParquetWriter;
use crate::row_group::RowGroupEncoder;
use crate::{AtomicFile, StoreError, shard_encoder};

/// The most rows of a row group.
const ROWS: usize = 1 << 16;
/// A row group ends with the row in which its texts reach this many bytes.
const TEXT_BYTES: usize = 1 << 26;

/// Writes a list row by row. Its bytes depend only on its rows.
pub struct RecordListWriter {
    writer: ParquetWriter,
    rows: RowsBuilder,
    text_bytes: usize,
}

impl RecordListWriter {
    /// Starts a list of this kind that will be at `path`.
    ///
    /// # Panics
    /// If it is a kind of batches or embeddings.
    pub fn create(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        let schema = kind.schema().expect("a kind of list");
        let encoder = if kind == Kind::Shard {
            shard_encoder(path)?
        } else {
            let properties = properties_of_records().build();
            RowGroupEncoder::new(path, kind, Arc::clone(&schema), properties)?
        };
        Ok(Self {
            writer: ParquetWriter::create(path, Arc::new(encoder))?,
            rows: RowsBuilder::new(schema),
            text_bytes: 0,
        })
    }

    /// Adds a row.
    pub fn push(&mut self, row: &impl Row) -> Result<(), StoreError> {
        self.text_bytes += self.rows.push(row);
        if self.rows.len() == ROWS || self.text_bytes >= TEXT_BYTES {
            self.end_row_group()?;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<(), StoreError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.text_bytes = 0;
        let batch = self.rows.batch();
        self.writer.push(&[batch])
    }

    /// Writes the remaining rows and the footer. Returns the digest of all rows, and the file, which is not published.
    pub fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<(RowDigest, AtomicFile), StoreError> {
        self.end_row_group()?;
        self.writer.finish(provenance)
    }
}

/// Reads a list; [`alias_rows`](plmkit_contract::alias_rows) and [`peptide_rows`](plmkit_contract::peptide_rows) are the rows of a
/// batch.
pub type RecordListReader = ParquetReader<()>;

impl RecordListReader {
    /// Opens a list of this kind, and checks its columns and its provenance.
    pub fn open(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        let opened = ParquetFile::of_kind(path, kind);
        Self::new(opened.map_err(|error| error.of_input(kind))?)
    }
}

#[cfg(test)]
mod tests;
