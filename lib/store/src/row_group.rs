//! Encodes the row groups of shards and embeddings files: their bytes, and their metadata for the footer.

use std::iter;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::schema::types::SchemaDescPtr;
use plmkit_contract::{Kind, RowDigest};

use crate::StoreError;
use crate::checksums::{Checksums, Format, Segment, bytes};
use crate::column_chunk::{ColumnChunk, bloom_filter, move_column, move_index};
use crate::list_column::{column_chunk, list_bytes};

/// The least bytes of values in a row group, unless the file has fewer. A column chunk of vectors is large enough for sequential
/// reads, and small enough to be skipped by `ordinal`.
pub const ROW_GROUP_BYTES: usize = 64 << 20;

/// The least rows of a row group with fewer bytes, unless the file has fewer.
pub const ROW_GROUP_ROWS: usize = 1 << 14;

/// The offset of the first row group.
pub(crate) const FIRST_ROW_GROUP: u64 = Format::Parquet.magic().len() as u64;

/// An encoded row group. Values of lists are not copied: the row group keeps their arrays alive.
pub struct RowGroup {
    pub(crate) pieces: Vec<Bytes>,
    /// Its metadata at the start of a file.
    metadata: PlacedRowGroup,
}

/// The metadata of a row group at a position in a file.
#[derive(Clone, Debug)]
pub(crate) struct PlacedRowGroup {
    pub(crate) metadata: RowGroupMetaData,
    pub(crate) column_indexes: Vec<Option<ColumnIndexMetaData>>,
    pub(crate) offset_indexes: Vec<Option<OffsetIndexMetaData>>,
    pub(crate) start: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) rows: RowDigest,
}

/// Encodes row groups of one kind of file and one layout.
pub struct RowGroupEncoder {
    pub(crate) kind: Kind,
    pub(crate) schema: SchemaRef,
    pub(crate) descriptor: SchemaDescPtr,
    pub(crate) properties: WriterProperties,
    /// The columns that are not lists. The Parquet library encodes them.
    flat: Vec<usize>,
}

impl RowGroupEncoder {
    /// Makes an encoder for files of `kind` with these columns. Errors name `path`.
    pub(crate) fn new(
        path: &Path,
        kind: Kind,
        schema: SchemaRef,
        properties: WriterProperties,
    ) -> std::result::Result<Self, StoreError> {
        let failed = |error| StoreError::encoding_parquet(path, error);
        let descriptor = ArrowSchemaConverter::new().convert(&schema);
        let fields = schema.fields().iter().enumerate();
        let flat = fields.filter(|(_, field)| !matches!(field.data_type(), DataType::List(_)));
        Ok(Self {
            kind,
            flat: flat.map(|(column, _)| column).collect(),
            descriptor: Arc::new(descriptor.map_err(failed)?),
            properties,
            schema,
        })
    }

    /// Divides rows into row groups of about the same size, each of at least [`ROW_GROUP_BYTES`] if there are so many.
    pub fn cut<'b>(
        &self,
        batches: impl Iterator<Item = &'b RecordBatch> + Clone,
    ) -> Vec<Vec<RecordBatch>> {
        let total: usize = batches.clone().map(|batch| self.bytes(batch)).sum();
        let each = total.div_ceil((total / ROW_GROUP_BYTES).max(1));
        let mut groups = Vec::new();
        let mut group = Vec::new();
        let mut bytes = 0;
        for batch in batches {
            let mut start = 0;
            for (row, size) in self.sizes(batch).enumerate() {
                bytes += size;
                if bytes >= each * (groups.len() + 1) && bytes < total {
                    group.push(batch.slice(start, row + 1 - start));
                    groups.push(std::mem::take(&mut group));
                    start = row + 1;
                }
            }
            if start < batch.num_rows() {
                group.push(batch.slice(start, batch.num_rows() - start));
            }
        }
        groups.push(group);
        groups.retain(|group: &Vec<RecordBatch>| !group.is_empty());
        groups
    }

    /// Returns the bytes of values of some rows.
    pub fn bytes(&self, batch: &RecordBatch) -> usize {
        self.sizes(batch).sum()
    }

    /// Iterates over the bytes of values of each row.
    fn sizes(&self, batch: &RecordBatch) -> impl Iterator<Item = usize> {
        let vectors: usize = self.flat.iter().map(|&column| self.width(column)).sum();
        let lists = list_bytes(batch);
        lists.into_iter().map(move |lists| vectors + lists)
    }

    /// Returns the bytes of a vector of a column.
    fn width(&self, column: usize) -> usize {
        match self.schema.field(column).data_type() {
            DataType::FixedSizeList(value, dim) => {
                value.data_type().primitive_width().unwrap_or(0) * *dim as usize
            }
            _ => 0,
        }
    }

    /// Encodes a row group.
    pub fn encode(&self, batches: &[RecordBatch]) -> Result<RowGroup> {
        let mut rows = RowDigest::default();
        for batch in batches {
            rows.update(batch).map_err(ParquetError::General)?;
        }
        // Batches may have one row each, and the writer has overhead for each batch.
        let flat = batches.iter().map(|batch| batch.project(&self.flat));
        let flat = flat.collect::<std::result::Result<Vec<_>, _>>()?;
        let joined = concat_batches(&Arc::new(self.schema.project(&self.flat)?), &flat);
        let flat = match joined {
            _ if flat.len() == 1 => flat,
            // Ids or descriptions of more than 2 GiB.
            Err(ArrowError::OffsetOverflowError(_)) => flat,
            joined => vec![joined?],
        };
        let flat = self.encode_flat(&flat)?;
        self.join(rows, flat, batches)
    }

    /// Joins the columns that the library encoded, and the lists of `batches`.
    fn join(
        &self,
        rows: RowDigest,
        flat: Vec<ColumnChunk>,
        batches: &[RecordBatch],
    ) -> Result<RowGroup> {
        let mut flat = flat.into_iter();
        let mut pieces = Vec::new();
        let mut end = 0;
        let mut uncompressed = 0;
        let mut columns = Vec::new();
        let (mut column_indexes, mut offset_indexes) = (Vec::new(), Vec::new());
        let mut bloom_filters = Vec::new();
        for column in 0..self.schema.fields().len() {
            let lists = || column_chunk(batches, column, self.descriptor.column(column));
            let mut chunk = if self.flat.contains(&column) {
                flat.next()
            } else {
                lists().transpose()?
            }
            .ok_or_else(|| ParquetError::General(format!("column {column} is of another type")))?;
            let size = chunk.metadata.compressed_size();
            uncompressed += chunk.metadata.uncompressed_size();
            pieces.append(&mut chunk.bytes);
            columns.push(move_column(chunk.metadata, end)?);
            column_indexes.push(chunk.column_index);
            bloom_filters.push(chunk.bloom_filter);
            offset_indexes.push(move_index(chunk.offset_index, end));
            end += size;
        }
        let mut sums = Checksums::default();
        for bytes in &pieces {
            sums.update(bytes);
        }
        // A reader of filters alone reads no more than them.
        sums.end_segment();
        for (column, filter) in bloom_filters.into_iter().enumerate() {
            if let Some(filter) = filter {
                sums.update(&filter);
                let metadata = columns[column].clone().into_builder();
                let metadata = metadata.set_bloom_filter_offset(Some(end));
                columns[column] = metadata.build()?;
                end += filter.len().cast_signed() as i64;
                pieces.push(filter);
            }
        }
        let metadata = RowGroupMetaData::builder(Arc::clone(&self.descriptor))
            .set_num_rows(rows.rows().cast_signed())
            .set_total_byte_size(uncompressed)
            .set_column_metadata(columns)
            .set_file_offset(0)
            .build()?;
        Ok(RowGroup {
            pieces,
            metadata: PlacedRowGroup {
                metadata,
                column_indexes,
                offset_indexes,
                start: 0,
                segments: sums.into_segments(),
                rows,
            },
        })
    }

    /// Encodes the columns that are not lists: the library writes them into a file in memory.
    fn encode_flat(&self, batches: &[RecordBatch]) -> Result<Vec<ColumnChunk>> {
        let schema = Arc::new(self.schema.project(&self.flat)?);
        let options = ArrowWriterOptions::new()
            .with_properties(self.properties.clone())
            .with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema, options)?;
        for batch in batches {
            writer.write(batch)?;
        }
        let metadata = writer.finish()?;
        let file = Bytes::from(std::mem::take(writer.inner_mut()));
        let [group] = metadata.row_groups() else {
            return Err(ParquetError::General("expected one row group".to_owned()));
        };
        let index = metadata.page_index_for_row_group(0);
        let columns = group.columns().iter().enumerate();
        columns
            .map(|(column, chunk)| {
                let (start, length) = chunk.byte_range();
                let bytes = file.slice(start as usize..(start + length) as usize);
                let by = -start.cast_signed();
                Ok(ColumnChunk {
                    bytes: vec![bytes],
                    metadata: move_column(chunk.clone(), by)?,
                    column_index: index.column_index(column).cloned(),
                    offset_index: move_index(index.offset_index(column).cloned(), by),
                    bloom_filter: bloom_filter(chunk)
                        .map(|range| file.slice(range.start as usize..range.end as usize)),
                })
            })
            .collect()
    }
}

impl RowGroup {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// Returns its metadata for a file in which it starts at `start`.
    pub(crate) fn placed(&self, start: u64) -> Result<PlacedRowGroup> {
        self.metadata.clone().with_offset(start)
    }
}

impl PlacedRowGroup {
    /// Returns the metadata of the same row group at `start`.
    pub(crate) fn with_offset(self, start: u64) -> Result<Self> {
        let by = start.cast_signed() - self.start.cast_signed();
        let columns = self.metadata.columns().iter();
        let columns = columns.map(|column| move_column(column.clone(), by));
        let columns = columns.collect::<Result<_>>()?;
        let offset = self.metadata.file_offset().unwrap_or(0) + by;
        let metadata = self.metadata.into_builder().set_column_metadata(columns);
        let indexes = self.offset_indexes.into_iter();
        Ok(Self {
            metadata: metadata.set_file_offset(offset).build()?,
            offset_indexes: indexes.map(|index| move_index(index, by)).collect(),
            start,
            ..self
        })
    }

    /// Returns the offset of the byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.start + bytes(&self.segments)
    }
}

/// Returns row group `number` of a file as it was written: it starts at `start`, its rows have the digest `rows`, and `segments` are
/// those of its bytes and what follows. The metadata have the page index, and statistics in the written form.
pub(crate) fn placed_group(
    metadata: &ParquetMetaData,
    number: usize,
    start: u64,
    rows: RowDigest,
    segments: &mut impl Iterator<Item = Segment>,
) -> Result<PlacedRowGroup> {
    let group = metadata.row_group(number);
    let index = metadata.page_index_for_row_group(number);
    let columns = 0..group.num_columns();
    let mut left = group_bytes(group);
    let own = iter::from_fn(|| {
        let segment = (left > 0).then(|| segments.next())??;
        left = left.saturating_sub(segment.bytes.into());
        Some(segment)
    });
    Ok(PlacedRowGroup {
        start,
        segments: own.collect(),
        rows,
        metadata: as_written(group)?,
        column_indexes: columns
            .clone()
            .map(|at| index.column_index(at).cloned())
            .collect(),
        offset_indexes: columns.map(|at| index.offset_index(at).cloned()).collect(),
    })
}

/// Makes a reader of metadata with the page index, for [`placed_group`].
pub(crate) fn indexed_metadata() -> ParquetMetaDataReader {
    // Statistics are kept in the written form, so that they can be written again.
    let options = ParquetMetaDataOptions::new().with_encoding_stats_as_mask(false);
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        .with_metadata_options(Some(options))
}

/// Restores the metadata of a row group as it was written. The writer also puts minima and maxima of signed integers into the
/// fields for old readers; the reader drops that information.
fn as_written(group: &RowGroupMetaData) -> Result<RowGroupMetaData> {
    let columns = group.columns().iter().map(|column| {
        let Some(Statistics::Int64(signed)) = column.statistics() else {
            return Ok(column.clone());
        };
        let signed = signed.clone().with_backwards_compatible_min_max(true);
        let column = column.clone().into_builder();
        column.set_statistics(Statistics::Int64(signed)).build()
    });
    let columns: Result<_> = columns.collect();
    let group = group.clone().into_builder();
    group.set_column_metadata(columns?).build()
}

/// Returns the number of bytes of a row group in its file.
fn group_bytes(group: &RowGroupMetaData) -> u64 {
    let columns = group.columns().iter();
    let sizes = columns.map(|column| {
        let filter = bloom_filter(column).map_or(0, |range| range.end - range.start);
        column.byte_range().1 + filter
    });
    sizes.sum()
}
