//! Parquet for shards and embeddings: common properties of the writers, and a verifying reader.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
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

/// The most rows of a decoded batch: 5 MiB of 1280-channel vectors.
const ROWS_PER_BATCH: usize = 1024;

/// The most bytes of a decoded batch of more than one row.
const DECODED_BYTES: u64 = 16 << 20;

/// Returns the properties common to all files: zstd, no dictionaries (ids, sequences and vectors hardly repeat).
pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
}

/// The rows of a decoded batch of [some columns](Reader::open_columns).
const ROWS_OF_KEYS: usize = 1 << 14;

/// Reads a Parquet file of plmkit batch by batch.
pub(crate) struct Reader {
    pub(crate) file: VerifiedFile,
    /// Whether all columns are read, and so all bytes verified.
    whole: bool,
    rows: ParquetRecordBatchReader,
    metadata: ArrowReaderMetadata,
    rows_per_batch: usize,
    pub(crate) schema: SchemaRef,
    pub(crate) provenance: Provenance,
    /// The digest of all rows, from the metadata.
    pub(crate) digest: RowDigest,
}

/// A Parquet file of plmkit whose metadata were parsed.
pub(crate) struct Parsed<T> {
    pub(crate) file: VerifiedFile,
    /// Without the page index.
    pub(crate) metadata: ArrowReaderMetadata,
    pub(crate) provenance: Provenance,
    /// The digest of all rows, from the metadata.
    pub(crate) digest: RowDigest,
    /// What the schema was parsed as.
    pub(crate) columns: T,
}

/// Opens a file of `kind` and parses its metadata. `parse_schema` checks its columns.
pub(crate) fn parse<T>(
    path: &Path,
    kind: Kind,
    parse_schema: impl FnOnce(&Schema) -> Result<T, String>,
) -> Result<Parsed<T>, StoreError> {
    let file = VerifiedFile::open(path, Format::Parquet)?;
    let broken = |error: ParquetError| file.decoding_error(&error);
    let footer = file.footer();
    let footer = &footer[..footer.len() - Format::Parquet.trailer()];
    let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(broken)?;
    let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        .map_err(broken)?;
    let about = metadata.metadata().file_metadata();
    let (provenance, digest) = Provenance::open(&entries(about), kind)
        .map_err(|error| StoreError::content(path, error))?;
    let columns =
        parse_schema(metadata.schema()).map_err(|what| StoreError::malformed(path, what))?;
    Ok(Parsed {
        file,
        metadata,
        provenance,
        digest,
        columns,
    })
}

impl Reader {
    /// Opens a file of `kind`. `parse_schema` checks its columns, and its result is returned too.
    pub(crate) fn open<T>(
        path: &Path,
        kind: Kind,
        parse_schema: impl FnOnce(&Schema) -> Result<T, String>,
    ) -> Result<(Self, T), StoreError> {
        Self::open_columns(path, kind, parse_schema, None)
    }

    /// [Opens](Self::open) a file to read only the `chosen` columns, which are no lists. Other bytes are neither read nor
    /// verified.
    pub(crate) fn open_columns<T>(
        path: &Path,
        kind: Kind,
        parse_schema: impl FnOnce(&Schema) -> Result<T, String>,
        chosen: Option<&[&str]>,
    ) -> Result<(Self, T), StoreError> {
        let Parsed {
            file,
            metadata,
            provenance,
            digest,
            columns,
        } = parse(path, kind, parse_schema)?;
        let schema = SchemaRef::clone(metadata.schema());
        let groups = metadata.metadata().row_groups().iter();
        let bytes: i64 = groups.map(RowGroupMetaData::total_byte_size).sum();
        let bytes_per_row = u64::try_from(bytes).unwrap_or(0) / digest.rows().max(1);
        let rows = DECODED_BYTES / bytes_per_row.max(1);
        let rows_per_batch = match chosen {
            None => ROWS_PER_BATCH.min(rows as usize).max(1),
            Some(_) => ROWS_OF_KEYS,
        };
        let rows = decoder(&file, &metadata, rows_per_batch, chosen)?;
        let reader = Self {
            file,
            whole: chosen.is_none(),
            rows,
            metadata,
            rows_per_batch,
            schema,
            provenance,
            digest,
        };
        Ok((reader, columns))
    }

    /// Returns to the first row. From now on, batches have only some of the `columns`; `None` is all.
    pub(crate) fn rewind(&mut self, columns: Option<&[&str]>) -> Result<(), StoreError> {
        self.rows = decoder(&self.file, &self.metadata, self.rows_per_batch, columns)?;
        Ok(())
    }

    /// Reads the next batch. Returns `None` after the last, when every byte of the columns that the file was opened for, of all
    /// columns every byte of the file, is verified.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = self.rows.next().transpose();
        let next = next.map_err(|error| self.file.decoding_error(&error))?;
        if next.is_none() && self.whole {
            self.file.verify_rest(&Stop::default())?;
        }
        Ok(next)
    }
}

/// Starts to decode a file at its first row.
fn decoder(
    file: &VerifiedFile,
    metadata: &ArrowReaderMetadata,
    rows_per_batch: usize,
    columns: Option<&[&str]>,
) -> Result<ParquetRecordBatchReader, StoreError> {
    let builder =
        ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata.clone());
    let mask = columns.map_or_else(ProjectionMask::all, |columns| {
        ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied())
    });
    let builder = builder
        .with_batch_size(rows_per_batch)
        .with_projection(mask);
    builder.build().map_err(|error| file.decoding_error(&error))
}

/// Returns the metadata entries of a file that have a value.
pub(crate) fn entries(about: &FileMetaData) -> BTreeMap<String, String> {
    let entries = about.key_value_metadata().into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
        .collect()
}
