//! Encodes a column of lists (residue vectors, logits, contacts) as Parquet pages, without a copy of the values.
//!
//! A general writer stores two levels for each value and copies all values. Here the levels follow from the shape: no value is
//! null, and all vectors have one length. A page is a header, a few runs of levels, and the values as they are in memory. Values
//! are not compressed: mantissas are noise (docs/internals/performance.md has the measurement).

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder};
use parquet::schema::types::ColumnDescPtr;

use crate::column_chunk::ColumnChunk;

/// A page ends with the row in which its values reach this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// A column of a batch: lists whose items are values, or vectors of values.
struct Lists<'a> {
    offsets: &'a [i32],
    bytes: Bytes,
    /// Bytes of an item.
    width: usize,
    /// Values in an item, if items are vectors.
    dim: Option<usize>,
}

impl<'a> Lists<'a> {
    /// Returns `None` for a column of another type.
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

    /// Returns the range of a row in `bytes`.
    fn range(&self, row: usize) -> Range<usize> {
        let [start, end] = [row, row + 1].map(|at| self.offsets[at] as usize * self.width);
        start..end
    }
}

/// Returns the bytes of the lists of each row, summed over all columns.
pub(crate) fn list_bytes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![0; batch.num_rows()];
    for lists in batch.columns().iter().filter_map(|array| Lists::new(array)) {
        for (row, size) in sizes.iter_mut().enumerate() {
            *size += lists.range(row).len();
        }
    }
    sizes
}

/// Encodes column `column` of `batches`; `None` for a column of another type.
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
    // The current page:
    repetition: Levels,
    definition: Levels,
    levels: usize,
    rows: u64,
    bytes: usize,
    pieces: Vec<Bytes>,
    /// The bytes of the current batch that belong to the current page.
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

    /// Ends the contiguous bytes: the next row is in another batch or page.
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

/// Returns the `PageHeader` of an uncompressed data page of version 1.
fn header(bytes: usize, levels: usize) -> Vec<u8> {
    // Thrift compact protocol: a field is one byte for its type and id delta, then an i32 as zigzag varint.
    let mut header = Vec::with_capacity(32);
    let mut field = |head: &[u8], value: usize| {
        header.extend(head);
        push_varint(&mut header, (value as u64) << 1);
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

/// Repetition or definition levels of up to 8 bits, run-length encoded.
///
/// Source: <https://parquet.apache.org/docs/file-format/data-pages/encodings/#run-length-encoding--bit-packing-hybrid-rle--3>.
#[derive(Debug, Default)]
struct Levels {
    bytes: Vec<u8>,
    level: u8,
    count: u64,
}

impl Levels {
    /// Adds `level` `count` times.
    fn push(&mut self, level: u8, count: usize) {
        if count == 0 {
            return;
        }
        if level != self.level {
            self.end_run();
            self.level = level;
        }
        self.count += count as u64;
    }

    fn end_run(&mut self) {
        if self.count > 0 {
            push_varint(&mut self.bytes, self.count << 1);
            self.bytes.push(self.level);
            self.count = 0;
        }
    }

    /// Appends the length in bytes and the runs to a page, and clears the levels.
    fn append_to(&mut self, page: &mut Vec<u8>) {
        self.end_run();
        page.extend((self.bytes.len() as u32).to_le_bytes());
        page.append(&mut self.bytes);
    }
}

/// Appends an unsigned LEB128 integer: 7 bits a byte, the lowest first.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_levels_are_one_run() {
        let mut levels = Levels::default();
        for (level, count) in [(0, 1), (2, 100), (2, 27), (1, 0), (2, 1), (1, 300)] {
            levels.push(level, count);
        }
        let mut page = Vec::new();
        levels.append_to(&mut page);
        assert_eq!(page, [8, 0, 0, 0, 2, 0, 0x80, 2, 2, 0xd8, 4, 1]);
        page.clear();
        levels.append_to(&mut page);
        assert_eq!(page, [0; 4], "nothing is left");
    }
}
