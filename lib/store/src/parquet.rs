//! What shard and embedding files share: one way to write Parquet, one way to read and verify it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, KeyValue, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use plmkit_contract::{Kind, Provenance, RowDigest, Stop, fields_text};

use crate::checksums::Format;
use crate::summed::Summed;
use crate::verified::VerifiedFile;
use crate::{AtomicFile, FileSummary, StoreError};

/// Bytes of rows that are decoded at once, unless one row has more.
const DECODED_BYTES: u64 = 16 << 20;

/// Properties common to all files: zstd, no dictionaries (ids, sequences and vectors hardly repeat).
pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
}

/// A Parquet file under construction that adds up the digest of its rows.
pub(crate) struct Writer {
    rows: ArrowWriter<Summed<AtomicFile>>,
    kind: Kind,
    digest: RowDigest,
    row_group_bytes: usize,
}

impl Writer {
    /// A row group is closed once it takes `row_group_bytes` of memory.
    pub(crate) fn create(
        path: &Path,
        kind: Kind,
        schema: SchemaRef,
        properties: WriterProperties,
        row_group_bytes: usize,
    ) -> Result<Self, StoreError> {
        let file = Summed::new(AtomicFile::create(path)?);
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|error| StoreError::encoding_parquet(path, error))?;
        Ok(Self {
            rows: writer,
            kind,
            digest: RowDigest::default(),
            row_group_bytes,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.rows.inner().inner().path()
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        self.digest
            .update(batch)
            .map_err(|error| StoreError::malformed(self.path(), error))?;
        let written = self.rows.write(batch);
        written.map_err(|error| StoreError::encoding_parquet(self.path(), error))?;
        if self.rows.memory_size() >= self.row_group_bytes {
            self.suspend()?;
        }
        Ok(())
    }

    /// Ends the row group and closes the file descriptor until the next one: there may be thousands of files.
    pub(crate) fn suspend(&mut self) -> Result<(), StoreError> {
        let suspended = self
            .rows
            .flush()
            .and_then(|()| Ok(self.rows.inner_mut().inner_mut().suspend()?));
        suspended.map_err(|error| StoreError::encoding_parquet(self.path(), error))
    }

    pub(crate) fn finish(mut self, provenance: &Provenance) -> Result<Finished, StoreError> {
        let path = self.path().to_owned();
        for (key, value) in provenance.entries(self.kind, self.digest) {
            self.rows
                .append_key_value_metadata(KeyValue::new(key, value));
        }
        let encoding = |error| StoreError::encoding_parquet(&path, error);
        self.rows.flush().map_err(encoding)?;
        self.rows.inner_mut().begin_end();
        let file = self.rows.into_inner().map_err(encoding)?;
        let file = file.finish(Format::Parquet).and_then(|mut file| {
            file.suspend()?;
            Ok(file)
        });
        let file = file.map_err(|source| StoreError::Write { path, source })?;
        let summary = FileSummary {
            digest: self.digest,
            bytes: file.written(),
        };
        Ok(Finished { file, summary })
    }
}

/// A file that is written but has not its name yet.
#[must_use]
pub(crate) struct Finished {
    file: AtomicFile,
    pub(crate) summary: FileSummary,
}

impl Finished {
    pub(crate) fn publish(self) -> Result<FileSummary, StoreError> {
        self.file.finish()?;
        Ok(self.summary)
    }
}

/// A Parquet file of ours that is read batch by batch.
pub(crate) struct Reader {
    file: VerifiedFile,
    rows: ParquetRecordBatchReader,
    schema: SchemaRef,
    provenance: Provenance,
    digest: RowDigest,
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
            .map_err(|source| StoreError::metadata(path, source))?;
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

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    pub(crate) fn digest(&self) -> RowDigest {
        self.digest
    }

    /// The next batch. Once there is none, every byte of the file has been verified.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let next = self.rows.next().transpose().map_err(|error| {
            self.file
                .failed(|path| StoreError::decoding_arrow(path, "Parquet", &error))
        })?;
        if next.is_none() {
            self.verify(&Stop::default())?;
        }
        Ok(next)
    }

    /// Verifies what has not been read.
    pub(crate) fn verify(&self, stop: &Stop) -> Result<(), StoreError> {
        self.file.verify_rest(stop)
    }

    pub(crate) fn into_table(mut self) -> Result<Table, StoreError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(Table {
            batches,
            provenance: self.provenance,
            digest: self.digest,
        })
    }
}

/// A whole file in memory, verified.
#[derive(Clone, Debug)]
pub struct Table {
    /// The rows, in file order.
    pub batches: Vec<RecordBatch>,
    /// Where they come from.
    pub provenance: Provenance,
    /// Their digest.
    pub digest: RowDigest,
}

/// The metadata entries of a file that have a value.
pub(crate) fn entries(about: &FileMetaData) -> BTreeMap<String, String> {
    let entries = about.key_value_metadata().into_iter().flatten();
    entries
        .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
        .collect()
}

/// Says how `found` differs from `expected`, if it does.
pub(crate) fn same_columns(found: &Schema, expected: &Schema) -> Result<(), String> {
    let text = |schema: &Schema| fields_text(schema).trim_end().replace('\n', ", ");
    if text(found) == text(expected) {
        Ok(())
    } else {
        Err(format!(
            "expected columns {}, found {}",
            text(expected),
            text(found)
        ))
    }
}
