//! A row group of a shard that is not complete, in little memory: there may be thousands of shards.

use std::sync::Arc;

use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetMetaDataWriter,
};
use plmkit_contract::RowDigest;

use crate::checksums::{Format, Segment, bytes};
use crate::row_group::{PlacedRowGroup, RowGroupEncoder};

/// A row group without an index of its pages. Its metadata is encoded, a fifth of the size.
pub(crate) struct PackedGroup {
    /// A footer with this row group only.
    footer: Box<[u8]>,
    start: u64,
    segments: Box<[Segment]>,
    rows: RowDigest,
}

impl PackedGroup {
    pub(crate) fn new(group: PlacedRowGroup, encoder: &RowGroupEncoder) -> Result<Self> {
        let descriptor = Arc::clone(&encoder.descriptor);
        let about = FileMetaData::new(1, 0, None, None, descriptor, None);
        let metadata = ParquetMetaData::new(about, vec![group.metadata]);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        footer.truncate(footer.len() - Format::Parquet.trailer());
        Ok(Self {
            footer: footer.into_boxed_slice(),
            start: group.start,
            segments: group.segments.into_boxed_slice(),
            rows: group.rows,
        })
    }

    /// Returns the offset of the next row group.
    pub(crate) fn end(&self) -> u64 {
        self.start + bytes(&self.segments)
    }

    /// Returns the row group as it was.
    pub(crate) fn unpack(self, encoder: &RowGroupEncoder) -> Result<PlacedRowGroup> {
        let options = ParquetMetaDataOptions::new()
            .with_schema(Arc::clone(&encoder.descriptor))
            .with_encoding_stats_as_mask(false);
        let read = ParquetMetaDataReader::decode_metadata_with_options;
        let footer = read(&self.footer, Some(&options))?;
        let metadata = footer.row_groups().first().cloned();
        let lost = || ParquetError::General("a row group was lost".to_owned());
        Ok(PlacedRowGroup {
            metadata: metadata.ok_or_else(lost)?,
            column_indexes: Vec::new(),
            offset_indexes: Vec::new(),
            start: self.start,
            segments: self.segments.into_vec(),
            rows: self.rows,
        })
    }
}
