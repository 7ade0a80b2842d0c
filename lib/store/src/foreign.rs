//! Parquet files of any origin, as the library decodes them.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use plmkit_contract::{guarded, key, plural};

use crate::StoreError;
use crate::open::open_input;

/// A Parquet file of any origin, decoded batch by batch.
pub struct ForeignParquet {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    /// Rows that are still to come, as the footer claims.
    left: i64,
    own: bool,
}

impl ForeignParquet {
    /// Opens a file; `choose` sees its columns and names the ones to read, or says what is wrong with them.
    ///
    /// Types are the plain ones that Parquet has: large, view and fixed-size types are not.
    pub fn open(
        path: &Path,
        choose: impl FnOnce(&Schema) -> Result<Vec<String>, String>,
    ) -> Result<Self, StoreError> {
        guard(path, || {
            // Without the Arrow schema that some writers embed, types are the plain ones.
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let file = open_input(path)?;
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
            let own = entries.any(|entry| entry.key.starts_with(key::PREFIX));
            let rows = builder
                .with_projection(mask)
                .build()
                .map_err(|error| StoreError::decoding_parquet(path, &error))?;
            Ok(Self {
                path: path.to_owned(),
                rows,
                left,
                own,
            })
        })
    }

    /// Whether the file says that plmkit wrote it. Then it has a digest, which nobody verifies here: the reader of its
    /// kind does.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// The next rows, or `None` after the last.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = guard(&self.path, || {
            let next = self.rows.next().transpose();
            next.map_err(|error| StoreError::decoding_arrow(&self.path, "Parquet", &error))
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

/// Runs a decoder on the file at `path`; its panic is an error of the file.
fn guard<T>(path: &Path, decode: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    guarded(decode).unwrap_or_else(|what| {
        Err(StoreError::malformed(
            path,
            format_args!("cannot be decoded: {what}"),
        ))
    })
}
