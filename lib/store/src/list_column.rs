//! A column of lists - vectors of residues, logits, contacts - as Parquet pages, with no copy of a value.
//!
//! A general writer makes two levels for each value and copies all of them. Here they are known: every value is there, and
//! all vectors have one length. So a page is a header, a few runs of levels, and the values as they lie in memory. They are not
//! compressed: mantissas are noise (docs/performance.md has the measurement).

use std::ops::Range;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float16Type, Float32Type};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder};
use parquet::schema::types::ColumnDescPtr;

use crate::levels::{Levels, varint};
use crate::row_group::ColumnChunk;

/// A page ends with the row that takes it past so many bytes of values.
const PAGE_BYTES: usize = 1 << 20;

/// One column of one batch: lists whose items are values, or vectors of values.
struct Lists<'a> {
    offsets: &'a [i32],
    bytes: Bytes,
    /// Of an item.
    width: usize,
    /// Values in an item, where items are vectors.
    dim: Option<usize>,
}

impl<'a> Lists<'a> {
    /// `None` where the column is no such list.
    fn new(array: &'a dyn Array) -> Option<Self> {
        let list = array.as_list_opt::<i32>()?;
        let (values, dim) = match list.values().as_fixed_size_list_opt() {
            Some(vectors) => (vectors.values(), Some(vectors.value_length() as usize)),
            None => (list.values(), None),
        };
        let (buffer, width) = match values.data_type() {
            DataType::Float32 => (values.as_primitive::<Float32Type>().values().inner(), 4),
            DataType::Float16 => (values.as_primitive::<Float16Type>().values().inner(), 2),
            _ => return None,
        };
        Some(Self {
            offsets: list.value_offsets(),
            bytes: Bytes::from_owner(buffer.clone()),
            width: width * dim.unwrap_or(1),
            dim,
        })
    }

    /// The bytes of a row.
    fn range(&self, row: usize) -> Range<usize> {
        let [start, end] = [row, row + 1].map(|at| self.offsets[at] as usize * self.width);
        start..end
    }
}

/// Bytes of the lists of each row, of all columns together.
pub(crate) fn list_bytes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![0; batch.num_rows()];
    for lists in batch.columns().iter().filter_map(|array| Lists::new(array)) {
        for (row, size) in sizes.iter_mut().enumerate() {
            *size += lists.range(row).len();
        }
    }
    sizes
}

/// The pages of column `column` of these batches; `None` where it is none of lists.
pub(crate) fn column_chunk(
    batches: &[RecordBatch],
    column: usize,
    descriptor: ColumnDescPtr,
) -> Option<Result<ColumnChunk>> {
    let mut pages = Pages::default();
    for batch in batches {
        let lists = Lists::new(batch.column(column).as_ref())?;
        for row in 0..batch.num_rows() {
            if let Err(error) = pages.add(&lists, row) {
                return Some(Err(error));
            }
        }
        pages.end_piece(&lists);
    }
    Some(pages.finish(descriptor))
}

/// Pages under construction.
#[derive(Default)]
struct Pages {
    done: Vec<Bytes>,
    done_bytes: u64,
    values: u64,
    index: OffsetIndexBuilder,
    // Of the page that is not done:
    repetition: Levels,
    definition: Levels,
    levels: usize,
    rows: u64,
    bytes: usize,
    pieces: Vec<Bytes>,
    /// Bytes of the batch that is gone through that belong to this page.
    piece: Range<usize>,
}

impl Pages {
    fn add(&mut self, lists: &Lists<'_>, row: usize) -> Result<()> {
        let range = lists.range(row);
        let items = range.len() / lists.width;
        match (items, lists.dim) {
            (0, _) => {
                self.repetition.push(0, 1);
                self.definition.push(0, 1);
                self.levels += 1;
            }
            (_, None) => {
                self.repetition.push(0, 1);
                self.repetition.push(1, items - 1);
                self.definition.push(1, items);
                self.levels += items;
            }
            (_, Some(dim)) => {
                for item in 0..items {
                    self.repetition.push(u8::from(item > 0), 1);
                    self.repetition.push(2, dim - 1);
                }
                self.definition.push(2, items * dim);
                self.levels += items * dim;
            }
        }
        if self.piece.is_empty() {
            self.piece.start = range.start;
        }
        self.piece.end = range.end;
        self.rows += 1;
        self.bytes += range.len();
        if self.bytes >= PAGE_BYTES {
            self.end_piece(lists);
            self.end_page()?;
        }
        Ok(())
    }

    /// What follows lies in another batch, or in another page.
    fn end_piece(&mut self, lists: &Lists<'_>) {
        if !self.piece.is_empty() {
            self.pieces.push(lists.bytes.slice(self.piece.clone()));
        }
        self.piece = 0..0;
    }

    fn end_page(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut levels = Vec::new();
        self.repetition.append_to(&mut levels);
        self.definition.append_to(&mut levels);
        let bytes = levels.len() + self.bytes;
        let mut page = header(bytes, self.levels);
        page.append(&mut levels);
        let stored = page.len() + self.bytes;
        let size = i32::try_from(stored).map_err(|_| {
            ParquetError::General(format!(
                "the lists of a row take {stored} bytes; expected at most 2 GiB, the most of a Parquet page"
            ))
        })?;
        self.index
            .append_offset_and_size(self.done_bytes.cast_signed(), size);
        self.index.append_row_count(self.rows.cast_signed());
        self.done.push(page.into());
        self.done.append(&mut self.pieces);
        self.done_bytes += stored as u64;
        self.values += self.levels as u64;
        (self.levels, self.rows, self.bytes) = (0, 0, 0);
        Ok(())
    }

    fn finish(mut self, descriptor: ColumnDescPtr) -> Result<ColumnChunk> {
        self.end_page()?;
        let size = self.done_bytes.cast_signed();
        let metadata = ColumnChunkMetaData::builder(descriptor)
            .set_encodings(vec![Encoding::PLAIN, Encoding::RLE])
            .set_compression(Compression::UNCOMPRESSED)
            .set_num_values(self.values.cast_signed())
            .set_total_compressed_size(size)
            .set_total_uncompressed_size(size)
            .set_data_page_offset(0);
        Ok(ColumnChunk {
            bytes: self.done,
            metadata: metadata.build()?,
            column_index: None,
            offset_index: Some(self.index.build()),
            bloom_filter: None,
        })
    }
}

/// The `PageHeader` of a data page of version 1 with so many bytes and levels, which is not compressed.
fn header(bytes: usize, levels: usize) -> Vec<u8> {
    // A field is its type and its distance from the last one; an i32 is a zigzag varint.
    let mut header = Vec::with_capacity(32);
    let mut field = |head: &[u8], value: usize| {
        header.extend(head);
        varint(&mut header, (value as u64) << 1);
    };
    field(&[0x15], 0); // type: DATA_PAGE
    field(&[0x15], bytes); // uncompressed_page_size
    field(&[0x15], bytes); // compressed_page_size
    field(&[0x2c, 0x15], levels); // data_page_header: num_values
    field(&[0x15], 0); // encoding: PLAIN
    field(&[0x15], 3); // definition_level_encoding: RLE
    field(&[0x15], 3); // repetition_level_encoding: RLE
    header.extend([0, 0]);
    header
}
