//! Parquet files of other programs.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use plmkit_contract::key;
use plmkit_kit::{catch_decoder_panic, plural};

use crate::StoreError;
use crate::input::open_input;

/// Reads a Parquet file of any program batch by batch. Nothing is verified.
pub struct ExternalParquet {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    /// Rows that were not read yet, according to the footer.
    left: i64,
    is_own: bool,
}

impl ExternalParquet {
    /// Opens a file. `choose` returns the names of the columns to read, or describes what is wrong with the columns.
    ///
    /// Types are Parquet's plain ones, not large, view or fixed-size types.
    pub fn open(
        path: &Path,
        choose: impl FnOnce(&Schema) -> Result<Vec<String>, String>,
    ) -> Result<Self, StoreError> {
        guard(path, || {
            // Some writers embed an Arrow schema with other types.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let file = Strict(open_input(path)?);
            let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
                .map_err(|error| StoreError::decoding_parquet(path, &error))?;
            let chosen =
                choose(builder.schema()).map_err(|what| StoreError::malformed(path, what))?;
            let fields = builder.schema().fields().iter().enumerate();
            let roots = fields.filter(|(_, field)| chosen.iter().any(|name| name == field.name()));
            let roots = roots.map(|(root, _)| root);
            let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
            let metadata = builder.metadata().file_metadata();
            let left = metadata.num_rows();
            let mut entries = metadata.key_value_metadata().into_iter().flatten();
            let is_own = entries.any(|entry| entry.key.starts_with(key::PREFIX));
            let rows = builder
                .with_projection(mask)
                .build()
                .map_err(|error| StoreError::decoding_parquet(path, &error))?;
            Ok(Self {
                path: path.to_owned(),
                rows,
                left,
                is_own,
            })
        })
    }

    /// Whether the metadata says that plmkit wrote the file. The reader of its kind also verifies its checksums.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Reads the next rows. Returns `None` after the last.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = guard(&self.path, || {
            let next = self.rows.next().transpose();
            next.map_err(|error| StoreError::decoding_parquet(&self.path, &error))
        })?;
        if let Some(batch) = &next {
            self.left -= i64::try_from(batch.num_rows()).unwrap_or(i64::MAX);
        } else if self.left != 0 {
            let what = format!("it has {} fewer than it claims", plural(self.left, "row"));
            return Err(StoreError::malformed(&self.path, what));
        }
        Ok(next)
    }
}

/// Runs a decoder on the file at `path`. Its panic becomes an error of the file.
fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_decoder_panic(decode).unwrap_or_else(|panic| {
        let what = format_args!("cannot be decoded: {panic}");
        Err(StoreError::malformed(path, what))
    })
}

/// A file in which a read at the end is an error. The library reads the values that a header claims, and would accept that they
/// are missing.
struct Strict(File);

impl Length for Strict {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Strict {
    type T = StrictRead;

    fn get_read(&self, start: u64) -> ParquetResult<StrictRead> {
        self.0.get_read(start).map(StrictRead)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.0.get_bytes(start, length)
    }
}

struct StrictRead(BufReader<File>);

impl Read for StrictRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_at_the_end_is_an_error() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("r.parquet");
        std::fs::write(&path, b"12345678").expect("write");
        let file = Strict(File::open(&path).expect("open"));
        let mut read = file.get_read(4).expect("a place in it");
        let copied = io::copy(&mut (&mut read).take(4), &mut io::sink());
        assert_eq!(copied.expect("four bytes are there"), 4);
        let error = io::copy(&mut read.take(8), &mut io::sink()).expect_err("no byte is there");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
