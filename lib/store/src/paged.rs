//! A Parquet file whose pages are checked as they are read.
//!
//! The Parquet reader takes memory as page headers tell it to: up to 2 GiB for a page of ten bytes. It asks for each
//! header and each page by its place in the file, so this is where claims meet limits, with no second pass.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Type as PhysicalType};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::reader::{ChunkReader, Length};

use crate::compact::{Compact, Flaw};
use crate::limits::{FOREIGN_PAGE, OWN_PAGE, PAGE_HEADER_BYTES};
use crate::page::{PageHeader, encoding};

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// plmkit: zstd or no compression, few encodings, no dictionaries, one column chunk after another.
    Own,
    /// Any program.
    Foreign,
}

/// A Parquet file, for the Parquet reader.
pub(crate) struct PagedFile {
    file: File,
    len: u64,
    origin: Origin,
    /// In file order.
    chunks: Vec<Chunk>,
    /// Headers whose pages have not been read yet, by where the pages begin.
    headers: Mutex<HashMap<u64, PageHeader>>,
}

/// Where the pages of one column of one row group lie.
struct Chunk {
    range: Range<u64>,
    compression: Compression,
    byte_array: bool,
    /// Kinds of levels that stand before the values: repetition, definition.
    levels: usize,
}

impl PagedFile {
    /// `file` has `len` bytes and the checked footer `metadata`. The error says how its column chunks cannot be.
    pub(crate) fn new(
        file: File,
        len: u64,
        metadata: &ParquetMetaData,
        origin: Origin,
    ) -> std::result::Result<Self, String> {
        check_rows(metadata)?;
        let groups = metadata.row_groups().iter();
        let mut chunks: Vec<Chunk> = groups
            .flat_map(|group| group.columns().iter().map(Chunk::new))
            .collect();
        chunks.sort_by_key(|chunk| chunk.range.start);
        // The magic string comes first.
        let mut end = 4;
        for chunk in &chunks {
            let Range { start, end: next } = chunk.range;
            if start < end || next > len || (origin == Origin::Own && start != end) {
                return Err(format!(
                    "a column lies at bytes {start} to {next}; expected it to begin at {end} in a file of {len}"
                ));
            }
            let ours = matches!(
                chunk.compression,
                Compression::ZSTD(_) | Compression::UNCOMPRESSED
            );
            if origin == Origin::Own && !ours {
                return Err(format!(
                    "expected columns compressed with zstd or not at all, found {}",
                    chunk.compression
                ));
            }
            end = next;
        }
        Ok(Self {
            file,
            len,
            origin,
            chunks,
            headers: Mutex::default(),
        })
    }

    fn chunk(&self, at: u64) -> Result<&Chunk> {
        let after = self.chunks.partition_point(|chunk| chunk.range.start <= at);
        let chunk = after.checked_sub(1).map(|index| &self.chunks[index]);
        chunk
            .filter(|chunk| chunk.range.contains(&at))
            .ok_or_else(|| wrong("a page lies outside all columns"))
    }

    /// Reads the page header at `start`, checks it, and returns its bytes.
    fn header(&self, start: u64, chunk: &Chunk) -> Result<(PageHeader, Vec<u8>)> {
        // Almost all headers take some 30 bytes.
        let mut size = 256;
        loop {
            let left = usize::try_from(chunk.range.end - start).unwrap_or(usize::MAX);
            let mut bytes = vec![0; left.min(size)];
            self.file.read_exact_at(&mut bytes, start)?;
            match PageHeader::read(&bytes) {
                Ok((header, length)) => {
                    let limits = match self.origin {
                        Origin::Own => &OWN_PAGE,
                        Origin::Foreign => &FOREIGN_PAGE,
                    };
                    header
                        .check(limits, (left - length) as u64)
                        .map_err(wrong)?;
                    if self.origin == Origin::Own {
                        check_own(&header).map_err(wrong)?;
                    }
                    bytes.truncate(length);
                    return Ok((header, bytes));
                }
                Err(Flaw::Cut) if left > size && size < PAGE_HEADER_BYTES => size *= 16,
                Err(Flaw::Cut) => return Err(wrong("a page header is cut")),
                Err(Flaw::Wrong(what)) => return Err(wrong(what)),
            }
        }
    }
}

/// Checks that the row groups have the rows of the file, and the columns those of their row group.
fn check_rows(metadata: &ParquetMetaData) -> std::result::Result<(), String> {
    let mut rows = Some(0_i64);
    for group in metadata.row_groups() {
        let count = group.num_rows();
        rows = rows
            .filter(|_| count >= 0)
            .and_then(|rows| rows.checked_add(count));
        let flat = |column: &&ColumnChunkMetaData| column.column_descr().max_rep_level() == 0;
        let other = |column: &&ColumnChunkMetaData| column.num_values() != count;
        if let Some(column) = group.columns().iter().filter(flat).find(other) {
            return Err(format!(
                "a row group claims {count} rows, and column '{}' {} values",
                column.column_path().string(),
                column.num_values()
            ));
        }
    }
    let claim = metadata.file_metadata().num_rows();
    if rows == Some(claim) {
        Ok(())
    } else {
        Err(format!(
            "it claims {claim} rows, and its row groups have others"
        ))
    }
}

/// Checks that a page is of a kind that the writers of this crate make.
fn check_own(header: &PageHeader) -> std::result::Result<(), String> {
    let known = [
        encoding::PLAIN,
        encoding::RLE,
        encoding::DELTA_BINARY_PACKED,
        encoding::DELTA_LENGTH_BYTE_ARRAY,
        encoding::BYTE_STREAM_SPLIT,
    ];
    if !header.is_data() {
        return Err("expected no dictionary".to_owned());
    }
    if known.contains(&header.data.encoding) {
        Ok(())
    } else {
        Err(format!("a page has encoding {}", header.data.encoding))
    }
}

impl Chunk {
    fn new(column: &ColumnChunkMetaData) -> Self {
        let (start, length) = column.byte_range();
        let descriptor = column.column_descr();
        let levels = [descriptor.max_rep_level(), descriptor.max_def_level()];
        Self {
            range: start..start.saturating_add(length),
            compression: column.compression(),
            byte_array: column.column_type() == PhysicalType::BYTE_ARRAY,
            levels: levels.iter().filter(|&&max| max > 0).count(),
        }
    }

    /// Checks what the values themselves claim: lengths of strings, packed as deltas, begin with their number, and
    /// the decoder takes memory for so many. Strings that are packed in a way of others are refused.
    fn check_values(&self, header: &PageHeader, page: &[u8]) -> io::Result<()> {
        if !self.byte_array || !header.is_data() {
            return Ok(());
        }
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let mut values: Box<dyn Read> =
            match (header.data.encoding, header.data.levels, self.compression) {
                (encoding::DELTA_LENGTH_BYTE_ARRAY, None, Compression::ZSTD(_)) => {
                    Box::new(zstd::stream::read::Decoder::new(page)?)
                }
                (encoding::DELTA_LENGTH_BYTE_ARRAY, None, Compression::UNCOMPRESSED) => {
                    Box::new(page)
                }
                (encoding::DELTA_LENGTH_BYTE_ARRAY | encoding::DELTA_BYTE_ARRAY, ..) => {
                    return invalid(
                        "strings are packed as deltas; expected plain or dictionary encoding",
                    );
                }
                _ => return Ok(()),
            };
        for _ in 0..self.levels {
            let mut length = [0; 4];
            values.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            io::copy(&mut values.by_ref().take(length), &mut io::sink())?;
        }
        let mut head = Vec::new();
        values.take(30).read_to_end(&mut head)?;
        let mut head = Compact::new(&head);
        // The size of a block, blocks in it, values.
        let count = (0..3).try_fold(0, |_, _| head.varint()).ok();
        match count {
            Some(count) if count <= header.data.values as u64 => Ok(()),
            _ => invalid("a page has more strings than its header says"),
        }
    }
}

impl Length for PagedFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for PagedFile {
    type T = Cursor<Vec<u8>>;

    /// A page header; nothing where a page begins, whose header has been read before.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        if headers.contains_key(&start) {
            return Ok(Cursor::default());
        }
        let (header, bytes) = self.header(start, self.chunk(start)?)?;
        headers.insert(start + bytes.len() as u64, header);
        Ok(Cursor::new(bytes))
    }

    /// A page.
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut headers = self.headers.lock().unwrap_or_else(PoisonError::into_inner);
        let header = headers
            .remove(&start)
            .filter(|header| header.stored == length)
            .ok_or_else(|| wrong("a page does not follow its header"))?;
        // Not `read_exact_at`, for which the memory would have to be filled with zeros first. The lock on the headers
        // is held, so nobody else seeks.
        let mut page = Vec::with_capacity(length);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(start))?;
        file.take(length as u64).read_to_end(&mut page)?;
        if page.len() < length {
            return Err(wrong("a page is cut"));
        }
        if length > 0 {
            self.chunk(start)?.check_values(&header, &page)?;
        }
        Ok(page.into())
    }
}

fn wrong(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::DataPage;

    /// A page of strings whose lengths begin with this claim of how many there are.
    fn check(count: u8, values: usize, levels: usize) -> io::Result<()> {
        check_encoded(encoding::DELTA_LENGTH_BYTE_ARRAY, count, values, levels)
    }

    fn check_encoded(encoding: usize, count: u8, values: usize, levels: usize) -> io::Result<()> {
        let chunk = Chunk {
            range: 4..100,
            compression: Compression::ZSTD(parquet::basic::ZstdLevel::default()),
            byte_array: true,
            levels,
        };
        let data = DataPage {
            values,
            encoding,
            levels: None,
        };
        let header = PageHeader {
            data,
            ..PageHeader::default()
        };
        let levels = [2, 0, 0, 0, 7, 7].repeat(levels);
        let page = [&levels[..], &[0x80, 1, 4, count, 6], b"MKV"].concat();
        let page = zstd::encode_all(&page[..], 1).expect("memory");
        chunk.check_values(&header, &page)
    }

    #[test]
    fn strings_are_counted_before_they_take_memory() {
        for levels in 0..3 {
            assert!(check(9, 10, levels).is_ok());
            assert!(check(10, 10, levels).is_ok());
            assert!(check(11, 10, levels).is_err());
        }
    }

    #[test]
    fn strings_that_cannot_be_counted_are_refused() {
        assert!(check_encoded(encoding::PLAIN, 10, 10, 0).is_ok());
        assert!(check_encoded(encoding::DELTA_BYTE_ARRAY, 10, 10, 0).is_err());
    }
}
