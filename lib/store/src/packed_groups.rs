//! The row groups of a shard that is not complete, in little memory: there may be thousands of shards.

use std::sync::Arc;

use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetMetaDataWriter,
};
use plmkit_contract::RowDigest;

use crate::checksums::{Format, Segment, bytes};
use crate::footer_writer::RowGroups;
use crate::row_group::{PlacedRowGroup, RowGroupEncoder};

/// Row groups without an index of their pages, in order. Their metadata is encoded, a fifth of the size.
#[derive(Default)]
pub(crate) struct PackedGroups(Vec<PackedGroup>);

struct PackedGroup {
    /// A footer with this row group only.
    footer: Box<[u8]>,
    start: u64,
    segments: Box<[Segment]>,
    rows: RowDigest,
}

impl PackedGroups {
    /// Returns the offset of the next row group.
    pub(crate) fn end(&self) -> u64 {
        let magic = Format::Parquet.magic().len() as u64;
        let last = self.0.last();
        last.map_or(magic, |group| group.start + bytes(&group.segments))
    }

    /// Adds a row group that starts at [`end`](Self::end).
    pub(crate) fn push(&mut self, group: PlacedRowGroup, encoder: &RowGroupEncoder) -> Result<()> {
        let descriptor = Arc::clone(&encoder.descriptor);
        let about = FileMetaData::new(1, 0, None, None, descriptor, None);
        let metadata = ParquetMetaData::new(about, vec![group.metadata]);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &metadata).finish()?;
        footer.truncate(footer.len() - Format::Parquet.trailer());
        self.0.push(PackedGroup {
            footer: footer.into_boxed_slice(),
            start: group.start,
            segments: group.segments.into_boxed_slice(),
            rows: group.rows,
        });
        Ok(())
    }

    /// Returns the row groups.
    pub(crate) fn unpack(self, encoder: &RowGroupEncoder) -> Result<RowGroups> {
        let options = ParquetMetaDataOptions::new()
            .with_schema(Arc::clone(&encoder.descriptor))
            .with_encoding_stats_as_mask(false);
        let groups = self.0.into_iter().map(|group| {
            let read = ParquetMetaDataReader::decode_metadata_with_options;
            let footer = read(&group.footer, Some(&options))?;
            let metadata = footer.row_groups().first().cloned();
            let lost = || ParquetError::General("a row group was lost".to_owned());
            Ok(PlacedRowGroup {
                metadata: metadata.ok_or_else(lost)?,
                column_indexes: Vec::new(),
                offset_indexes: Vec::new(),
                start: group.start,
                segments: group.segments.into_vec(),
                rows: group.rows,
            })
        });
        groups.collect::<Result<_>>().map(RowGroups)
    }
}
