//! An encoded column of a row group, and its place in a file.

use std::ops::Range;

use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;

/// An encoded column of a row group. Offsets in its metadata count from its start.
pub(crate) struct ColumnChunk {
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) metadata: ColumnChunkMetaData,
    pub(crate) column_index: Option<ColumnIndexMetaData>,
    pub(crate) offset_index: Option<OffsetIndexMetaData>,
    pub(crate) bloom_filter: Option<Bytes>,
}

/// Adds `by` to the offsets of a column.
pub(crate) fn move_column(column: ColumnChunkMetaData, by: i64) -> Result<ColumnChunkMetaData> {
    let offset = column.data_page_offset() + by;
    let filter = column.bloom_filter_offset().map(|offset| offset + by);
    let column = column.into_builder().set_data_page_offset(offset);
    let column = column.set_bloom_filter_offset(filter);
    // The page index is written anew.
    let column = column
        .set_offset_index_offset(None)
        .set_offset_index_length(None)
        .set_column_index_offset(None)
        .set_column_index_length(None);
    column.build()
}

/// Adds `by` to the offsets of the pages of a column.
pub(crate) fn move_index(
    index: Option<OffsetIndexMetaData>,
    by: i64,
) -> Option<OffsetIndexMetaData> {
    let mut index = index?;
    for page in &mut index.page_locations {
        page.offset += by;
    }
    Some(index)
}

/// Returns the bytes of the bloom filter of a column chunk.
pub(crate) fn bloom_filter(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
    Some(start..start + u64::try_from(chunk.bloom_filter_length()?).ok()?)
}
