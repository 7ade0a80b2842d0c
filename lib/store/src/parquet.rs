//! What shard and embedding files share: properties of the writer, and a reader that verifies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use plmkit_contract::{Kind, Provenance, RowDigest, Stop};

use crate::StoreError;
use crate::checksums::Format;
use crate::verified::VerifiedFile;

/// Bytes of rows that are decoded at once, unless one row has more.
const DECODED_BYTES: u64 = 16 << 20;

/// Properties common to all files: zstd, no dictionaries (ids, sequences and vectors hardly repeat).
pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
}

/// A Parquet file of ours that is read batch by batch.
pub(crate) struct Reader {
    pub(crate) file: VerifiedFile,
    rows: ParquetRecordBatchReader,
    pub(crate) schema: SchemaRef,
    pub(crate) provenance: Provenance,
    /// The digest of all rows, as the metadata has it.
    pub(crate) digest: RowDigest,
}

impl Reader {
    /// Opens a file of `kind`, of which at most so many rows are decoded at once; `check` says what is wrong with its
    /// columns.
    pub(crate) fn open(
        path: &Path,
        kind: Kind,
        rows_per_batch: usize,
        check: impl FnOnce(&Schema) -> Result<(), String>,
    ) -> Result<Self, StoreError> {
        let file = VerifiedFile::open(path, Format::Parquet)?;
        let broken =
            |error: ParquetError| file.failed(|path| StoreError::decoding_parquet(path, &error));
        let footer = file.footer();
        let footer = &footer[..footer.len() - Format::Parquet.trailer()];
        let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(broken)?;
        let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
            .map_err(broken)?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata);
        let schema = SchemaRef::clone(builder.schema());
        let about = builder.metadata().file_metadata();
        let (provenance, digest) = Provenance::open(&entries(about), kind)
            .map_err(|error| StoreError::metadata(path, &error))?;
        check(&schema).map_err(|what| StoreError::malformed(path, what))?;
        let groups = builder.metadata().row_groups().iter();
        let bytes: i64 = groups.map(RowGroupMetaData::total_byte_size).sum();
        let bytes_per_row = u64::try_from(bytes).unwrap_or(0) / digest.rows().max(1);
        let rows = DECODED_BYTES / bytes_per_row.max(1);
        let rows = builder
            .with_batch_size(rows_per_batch.min(rows as usize).max(1))
            .build()
            .map_err(broken)?;
        Ok(Self {
            file,
            rows,
            schema,
            provenance,
            digest,
        })
    }

    /// The next batch. Once there is none, every byte of the file has been verified.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = self.rows.next().transpose().map_err(|error| {
            self.file
                .failed(|path| StoreError::decoding_parquet(path, &error))
        })?;
        if next.is_none() {
            self.file.verify_rest(&Stop::default())?;
        }
        Ok(next)
    }
}

/// The metadata entries of a file that have a value.
pub(crate) fn entries(about: &FileMetaData) -> BTreeMap<String, String> {
    let entries = about.key_value_metadata().into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
        .collect()
}
