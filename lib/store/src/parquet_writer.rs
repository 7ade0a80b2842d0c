//! Writes a Parquet file of plmkit, a row group after another.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::errors::ParquetError;
use plmkit_contract::{Provenance, RowDigest};

use crate::checksums::Format;
use crate::footer_writer::RowGroups;
use crate::row_group::{PlacedRowGroup, RowGroup, RowGroupEncoder};
use crate::{AtomicFile, StoreError};

/// A Parquet file that has no footer yet.
pub(crate) struct ParquetWriter {
    pub(crate) file: AtomicFile,
    pub(crate) encoder: Arc<RowGroupEncoder>,
    pub(crate) groups: RowGroups,
}

impl ParquetWriter {
    /// Starts a file that will be at `path`.
    pub(crate) fn create(path: &Path, encoder: Arc<RowGroupEncoder>) -> Result<Self, StoreError> {
        let mut file = AtomicFile::create(path)?;
        file.append(Format::Parquet.magic())?;
        Ok(Self {
            file,
            encoder,
            groups: RowGroups::default(),
        })
    }

    /// Encodes and adds a row group.
    pub(crate) fn push(&mut self, batches: &[RecordBatch]) -> Result<(), StoreError> {
        let group = self.encoder.encode(batches);
        let group = group.map_err(|error| self.encoding(error))?;
        let placed = self.write(&group, self.groups.end())?;
        self.groups.push(placed);
        Ok(())
    }

    /// Writes the bytes of a row group, which starts at `start`. Returns its metadata there.
    pub(crate) fn write(
        &mut self,
        group: &RowGroup,
        start: u64,
    ) -> Result<PlacedRowGroup, StoreError> {
        let placed = group.placed(start);
        let placed = placed.map_err(|error| self.encoding(error))?;
        for bytes in &group.pieces {
            self.file.append(bytes)?;
        }
        Ok(placed)
    }

    /// Makes the error of rows that cannot be encoded.
    pub(crate) fn encoding(&self, error: ParquetError) -> StoreError {
        StoreError::encoding_parquet(self.file.path(), error)
    }

    /// Writes the footer. Returns the digest of all rows, and the file, which is not published.
    pub(crate) fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<(RowDigest, AtomicFile), StoreError> {
        let path = self.file.path();
        let footer = self.groups.footer(&self.encoder, provenance, path)?;
        self.file.append(&footer)?;
        Ok((self.groups.rows(), self.file))
    }
}
