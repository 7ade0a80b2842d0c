//! Parquet files of plmkit: a verifying reader, and the properties that all writers share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;
use plmkit_contract::{DATASET, DESCRIPTION, Kind, Provenance, REPRESENTATIVE, RowDigest, SAMPLE};
use plmkit_kit::{Quoted, Stop};

use crate::StoreError;
use crate::checksums::Format;
use crate::verified::VerifiedFile;

/// The most rows of a decoded batch: 5 MiB of 1280-channel vectors.
const ROWS_PER_BATCH: usize = 1024;

/// The most bytes of a decoded batch of more than one row.
const DECODED_BYTES: u64 = 16 << 20;

/// The level of zstd: proteins and vectors hardly repeat, and a higher one costs more time than it saves bytes.
const ZSTD_LEVEL: i32 = 1;

/// Returns the compression of all pages but those of [lists](crate::list_column).
pub(crate) fn compression() -> Compression {
    Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL).expect("a level of zstd"))
}

/// Returns the properties of the columns of a file: zstd, no dictionaries (ids, sequences and vectors hardly repeat), these
/// encodings, and no minima and maxima of columns by which no reader can skip rows.
pub(crate) fn properties(
    encodings: &[(&str, Encoding)],
    without_statistics: &[&str],
) -> WriterPropertiesBuilder {
    let mut properties = WriterProperties::builder()
        .set_compression(compression())
        .set_dictionary_enabled(false);
    for (column, encoding) in encodings {
        properties = properties.set_column_encoding(ColumnPath::from(*column), *encoding);
    }
    for column in without_statistics {
        let column = ColumnPath::from(*column);
        properties = properties.set_column_statistics_enabled(column, EnabledStatistics::None);
    }
    properties
}

/// Returns the properties of shards and of lists of records, whatever columns they have.
pub(crate) fn properties_of_records() -> WriterPropertiesBuilder {
    let encodings = [
        ("ordinal", Encoding::DELTA_BINARY_PACKED),
        ("id", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        (DESCRIPTION, Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("sequence", Encoding::DELTA_LENGTH_BYTE_ARRAY),
        ("length", Encoding::DELTA_BINARY_PACKED),
        (DATASET, Encoding::DELTA_BINARY_PACKED),
        (REPRESENTATIVE, Encoding::DELTA_BINARY_PACKED),
        ("contig", Encoding::DELTA_BYTE_ARRAY),
        ("start", Encoding::DELTA_BINARY_PACKED),
        ("end", Encoding::DELTA_BINARY_PACKED),
        ("frame", Encoding::DELTA_BINARY_PACKED),
    ];
    properties(&encodings, &[DESCRIPTION, "sequence", "sequence_digest"])
}

/// A Parquet file of plmkit whose metadata were parsed.
#[derive(Debug)]
pub struct ParquetFile<T> {
    pub(crate) file: VerifiedFile,
    /// Without the page index.
    pub(crate) metadata: ArrowReaderMetadata,
    /// The metadata with the page index, once it was needed.
    pub(crate) indexed: OnceLock<ArrowReaderMetadata>,
    provenance: Provenance,
    digest: RowDigest,
    layout: T,
}

impl ParquetFile<()> {
    /// Opens a file of `kind`, parses its metadata and checks its columns.
    pub(crate) fn of_kind(path: &Path, kind: Kind) -> Result<Self, StoreError> {
        Self::parse(path, kind, |schema| kind.check_columns(schema))
    }
}

impl<T> ParquetFile<T> {
    /// Opens a file of `kind` and parses its metadata. `parse_schema` checks its columns, and returns their layout.
    pub(crate) fn parse(
        path: &Path,
        kind: Kind,
        parse_schema: impl FnOnce(&Schema) -> Result<T, String>,
    ) -> Result<Self, StoreError> {
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
        let layout =
            parse_schema(metadata.schema()).map_err(|what| StoreError::malformed(path, what))?;
        Ok(Self {
            file,
            metadata,
            indexed: OnceLock::new(),
            provenance,
            digest,
            layout,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns all columns.
    pub fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    /// Returns the layout of the columns.
    pub fn layout(&self) -> &T {
        &self.layout
    }

    /// Returns the provenance of the file.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Returns the digest of all rows from the metadata, with their number.
    pub fn digest(&self) -> RowDigest {
        self.digest
    }

    /// Verifies the bytes that were not read. Polls `stop` between segments.
    pub fn verify(&self, stop: &Stop) -> Result<(), StoreError> {
        self.file.verify_rest(stop)
    }

    /// Checks that rows are of the samples of the metadata.
    pub(crate) fn check_samples(&self, rows: &RecordBatch) -> Result<(), StoreError> {
        let names = self.provenance.text_option(SAMPLE).unwrap_or_default();
        let is_other = |name: &&str| names.split(", ").all(|own| own != *name);
        let samples = rows.column_by_name(SAMPLE).map(AsArray::as_string::<i32>);
        let mut samples = samples.into_iter().flatten().flatten();
        samples.find(is_other).map_or(Ok(()), |other| {
            let [names, other] = [names, other].map(Quoted);
            let what =
                format!("expected rows of sample {names}, as its metadata say, found {other}");
            Err(StoreError::malformed(self.path(), what))
        })
    }

    /// Starts to decode the file at its first row.
    fn decoder(
        &self,
        rows_per_batch: usize,
        columns: Option<&[&str]>,
    ) -> Result<ParquetRecordBatchReader, StoreError> {
        let (file, metadata) = (self.file.clone(), self.metadata.clone());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
        let mask = columns.map_or_else(ProjectionMask::all, |columns| {
            ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied())
        });
        let builder = builder
            .with_batch_size(rows_per_batch)
            .with_projection(mask);
        let decoder = builder.build();
        decoder.map_err(|error| self.file.decoding_error(&error))
    }
}

/// Reads a Parquet file of plmkit batch by batch. Returned rows are verified. The whole file is verified once
/// [`next_batch`](Self::next_batch) returns `Ok(None)`.
pub struct ParquetReader<T> {
    opened: ParquetFile<T>,
    rows: ParquetRecordBatchReader,
    rows_per_batch: usize,
    /// The digest of the rows so far, if they have all columns.
    read: Option<RowDigest>,
}

impl<T> ParquetReader<T> {
    pub(crate) fn new(opened: ParquetFile<T>) -> Result<Self, StoreError> {
        let groups = opened.metadata.metadata().row_groups().iter();
        let bytes: i64 = groups.map(RowGroupMetaData::total_byte_size).sum();
        let bytes_per_row = u64::try_from(bytes).unwrap_or(0) / opened.digest.rows().max(1);
        let rows = DECODED_BYTES / bytes_per_row.max(1);
        let rows_per_batch = ROWS_PER_BATCH.min(rows as usize).max(1);
        Ok(Self {
            rows: opened.decoder(rows_per_batch, None)?,
            opened,
            rows_per_batch,
            read: Some(RowDigest::default()),
        })
    }

    /// Returns to the first row. From now on, batches have only some of the `columns`; `None` is all.
    pub(crate) fn rewind(&mut self, columns: Option<&[&str]>) -> Result<(), StoreError> {
        self.rows = self.opened.decoder(self.rows_per_batch, columns)?;
        self.read = columns.is_none().then(RowDigest::default);
        Ok(())
    }

    /// Reads the next rows. Returns `None` after the last, when every byte of the file is verified, and the digest of its rows if all
    /// columns were read.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = self.rows.next().transpose();
        let next = next.map_err(|error| self.file.decoding_error(&error))?;
        let Some(batch) = &next else {
            self.verify(&Stop::default())?;
            let checked = |read| check_digest(self.path(), self.digest, read);
            self.read.map_or(Ok(()), checked)?;
            return Ok(None);
        };
        self.check_samples(batch)?;
        if let Some(read) = &mut self.read {
            let digested = read.update(batch);
            digested.map_err(|what| StoreError::malformed(self.opened.path(), what))?;
        }
        Ok(next)
    }
}

impl<T> Deref for ParquetReader<T> {
    type Target = ParquetFile<T>;

    fn deref(&self) -> &ParquetFile<T> {
        &self.opened
    }
}

/// Checks that the rows of a file have the digest of its metadata.
pub fn check_digest(path: &Path, expected: RowDigest, found: RowDigest) -> Result<(), StoreError> {
    if found == expected {
        return Ok(());
    }
    let what = format!("expected rows {expected}, as its metadata say, found {found}");
    Err(StoreError::malformed(path, what))
}

/// Returns the metadata entries of a file that have a value.
pub(crate) fn entries(about: &FileMetaData) -> BTreeMap<String, String> {
    let entries = about.key_value_metadata().into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
        .collect()
}
