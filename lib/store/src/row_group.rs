//! Rows of an embeddings file, encoded: the bytes of a row group, and what the footer says of them.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use bytes::Bytes;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::SchemaDescPtr;
use plmkit_contract::{EmbeddingLayout, RowDigest};

use crate::checksums::{Checksums, Segment};
use crate::embeddings::properties_of;
use crate::list_column::{column_chunk, list_bytes};

/// Bytes of values of a row group, at least, where there are so many: large enough for a column chunk of vectors to be read in
/// one go, small enough for a reader to skip by `ordinal`.
pub const ROW_GROUP_BYTES: usize = 64 << 20;

/// A column of a row group, with its places counted from its beginning.
pub(crate) struct ColumnChunk {
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) metadata: ColumnChunkMetaData,
    pub(crate) column_index: Option<ColumnIndexMetaData>,
    pub(crate) offset_index: Option<OffsetIndexMetaData>,
    pub(crate) bloom_filter: Option<Bytes>,
}

/// What the footer and the page index say of a row group.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) group: RowGroupMetaData,
    pub(crate) column_indexes: Vec<Option<ColumnIndexMetaData>>,
    pub(crate) offset_indexes: Vec<Option<OffsetIndexMetaData>>,
}

/// Rows as they lie in a file. Values of lists are not copied: the arrays that they came in live as long as this.
pub struct RowGroup {
    pieces: Vec<Bytes>,
    segments: Vec<Segment>,
    described: Described,
    rows: RowDigest,
}

/// A row group in a file.
#[derive(Clone, Debug)]
pub struct PlacedRowGroup {
    pub(crate) described: Described,
    pub(crate) start: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) rows: RowDigest,
}

/// Encodes the rows of embeddings files of one layout.
#[derive(Clone)]
pub struct RowGroupEncoder {
    schema: SchemaRef,
    descriptor: SchemaDescPtr,
    properties: WriterProperties,
    /// The columns that are no lists. The library encodes them.
    flat: Vec<usize>,
}

impl RowGroupEncoder {
    /// For the columns of `layout`.
    pub fn new(layout: &EmbeddingLayout) -> Result<Self> {
        let schema = layout.schema();
        let fields = schema.fields().iter().enumerate();
        let flat = fields.filter(|(_, field)| !matches!(field.data_type(), DataType::List(_)));
        Ok(Self {
            flat: flat.map(|(column, _)| column).collect(),
            descriptor: Arc::new(ArrowSchemaConverter::new().convert(&schema)?),
            properties: properties_of(layout),
            schema,
        })
    }

    /// The columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn descriptor(&self) -> &SchemaDescPtr {
        &self.descriptor
    }

    pub(crate) fn properties(&self) -> &WriterProperties {
        &self.properties
    }

    /// Cuts rows into row groups of about the same size, each of at least [`ROW_GROUP_BYTES`] if they have so many.
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

    /// Bytes of values of some rows.
    pub fn bytes(&self, batch: &RecordBatch) -> usize {
        self.sizes(batch).sum()
    }

    /// Bytes of values of each row.
    fn sizes(&self, batch: &RecordBatch) -> impl Iterator<Item = usize> {
        let vectors: usize = self.flat.iter().map(|&column| self.width(column)).sum();
        let lists = list_bytes(batch);
        lists.into_iter().map(move |lists| vectors + lists)
    }

    /// Bytes of a vector.
    fn width(&self, column: usize) -> usize {
        match self.schema.field(column).data_type() {
            DataType::FixedSizeList(value, dim) => {
                value.data_type().primitive_width().unwrap_or(0) * *dim as usize
            }
            _ => 0,
        }
    }

    /// Encodes some rows.
    pub fn encode(&self, batches: &[RecordBatch]) -> Result<RowGroup> {
        let mut rows = RowDigest::default();
        for batch in batches {
            let digested = rows.update(batch);
            digested.map_err(|error| ParquetError::External(Box::new(error)))?;
        }
        let mut flat = self.encode_flat(batches)?.into_iter();
        let mut pieces = Vec::new();
        let mut place = 0;
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
            columns.push(moved(chunk.metadata, place)?);
            column_indexes.push(chunk.column_index);
            bloom_filters.push(chunk.bloom_filter);
            offset_indexes.push(chunk.offset_index.map(|index| moved_index(index, place)));
            place += size;
        }
        for (column, filter) in bloom_filters.into_iter().enumerate() {
            if let Some(filter) = filter {
                let described = columns[column].clone().into_builder();
                let described = described.set_bloom_filter_offset(Some(place));
                columns[column] = described.build()?;
                place += filter.len().cast_signed() as i64;
                pieces.push(filter);
            }
        }
        let mut sums = Checksums::default();
        for bytes in &pieces {
            sums.update(bytes);
        }
        let group = RowGroupMetaData::builder(Arc::clone(&self.descriptor))
            .set_num_rows(rows.rows().cast_signed())
            .set_total_byte_size(uncompressed)
            .set_column_metadata(columns)
            .set_file_offset(0)
            .build()?;
        Ok(RowGroup {
            segments: sums.into_segments(),
            pieces,
            described: Described {
                group,
                column_indexes,
                offset_indexes,
            },
            rows,
        })
    }

    /// The columns that are no lists, as the library writes them into a file of their own.
    fn encode_flat(&self, batches: &[RecordBatch]) -> Result<Vec<ColumnChunk>> {
        let schema = Arc::new(self.schema.project(&self.flat)?);
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(self.properties.clone()))?;
        for batch in batches {
            writer.write(&batch.project(&self.flat)?)?;
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
                let offset_index = index.offset_index(column).cloned();
                Ok(ColumnChunk {
                    bytes: vec![bytes],
                    metadata: moved(chunk.clone(), -start.cast_signed())?,
                    column_index: index.column_index(column).cloned(),
                    offset_index: offset_index
                        .map(|index| moved_index(index, -start.cast_signed())),
                    bloom_filter: bloom_filter(chunk)
                        .map(|range| file.slice(range.start as usize..range.end as usize)),
                })
            })
            .collect()
    }
}

impl RowGroup {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|bytes| bytes.len() as u64).sum()
    }

    /// Its bytes, in pieces.
    pub(crate) fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// What is to be known of it where its bytes begin at `start`.
    pub(crate) fn placed(&self, start: u64) -> Result<PlacedRowGroup> {
        Ok(PlacedRowGroup {
            described: self.described.clone().moved(start.cast_signed())?,
            start,
            segments: self.segments.clone(),
            rows: self.rows,
        })
    }
}

impl PlacedRowGroup {
    /// The same row group where its bytes begin at `start`.
    pub(crate) fn moved(self, start: u64) -> Result<Self> {
        let by = start.cast_signed() - self.start.cast_signed();
        Ok(Self {
            described: self.described.moved(by)?,
            start,
            ..self
        })
    }

    /// Where its bytes end.
    pub(crate) fn end(&self) -> u64 {
        let bytes = self.segments.iter();
        self.start + bytes.map(|part| u64::from(part.bytes)).sum::<u64>()
    }
}

impl Described {
    /// The same, so many bytes further on.
    fn moved(self, by: i64) -> Result<Self> {
        let columns = self.group.columns().iter();
        let columns = columns.map(|column| moved(column.clone(), by));
        let columns = columns.collect::<Result<_>>()?;
        let offset = self.group.file_offset().unwrap_or(0) + by;
        let group = self.group.into_builder().set_column_metadata(columns);
        let indexes = self.offset_indexes.into_iter();
        Ok(Self {
            group: group.set_file_offset(offset).build()?,
            offset_indexes: indexes
                .map(|index| index.map(|index| moved_index(index, by)))
                .collect(),
            ..self
        })
    }
}

fn moved(column: ColumnChunkMetaData, by: i64) -> Result<ColumnChunkMetaData> {
    let offset = column.data_page_offset() + by;
    let filter = column.bloom_filter_offset().map(|offset| offset + by);
    let column = column.into_builder().set_data_page_offset(offset);
    let column = column.set_bloom_filter_offset(filter);
    // The page index is written again.
    let column = column
        .set_offset_index_offset(None)
        .set_offset_index_length(None)
        .set_column_index_offset(None)
        .set_column_index_length(None);
    column.build()
}

fn moved_index(mut index: OffsetIndexMetaData, by: i64) -> OffsetIndexMetaData {
    for page in &mut index.page_locations {
        page.offset += by;
    }
    index
}

/// Where the bloom filter of a column chunk lies.
pub(crate) fn bloom_filter(chunk: &ColumnChunkMetaData) -> Option<Range<u64>> {
    let start = u64::try_from(chunk.bloom_filter_offset()?).ok()?;
    Some(start..start + u64::try_from(chunk.bloom_filter_length()?).ok()?)
}
