//! What shard and embedding files share: one way to write Parquet, one way to read and verify it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use plmkit_contract::{Kind, Provenance, RowDigest, fields_text, plural};

use crate::footer::read_footer;
use crate::guard::guard;
use crate::limits::{DECODED_BYTES, ID_BYTES};
use crate::open::open_input;
use crate::paged::{Origin, PagedFile};
use crate::{AtomicFile, FileSummary, StoreError};

/// Properties common to all files: zstd, no dictionaries (ids, sequences and vectors hardly repeat).
pub(crate) fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
}

/// A Parquet file under construction that adds up the digest of its rows.
pub(crate) struct Writer {
    rows: ArrowWriter<AtomicFile>,
    schema: SchemaRef,
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
        let file = AtomicFile::create(path)?;
        let writer = ArrowWriter::try_new(file, SchemaRef::clone(&schema), Some(properties))
            .map_err(|error| StoreError::encoding_parquet(path, error))?;
        Ok(Self {
            rows: writer,
            schema,
            kind,
            digest: RowDigest::default(),
            row_group_bytes,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.rows.inner().path()
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
            .and_then(|()| Ok(self.rows.inner_mut().suspend()?));
        suspended.map_err(|error| StoreError::encoding_parquet(self.path(), error))
    }

    pub(crate) fn finish(mut self, provenance: &Provenance) -> Result<Finished, StoreError> {
        let path = self.path().to_owned();
        for (key, value) in provenance.seal(self.kind, &self.schema, self.digest) {
            self.rows
                .append_key_value_metadata(KeyValue::new(key, value));
        }
        let mut file = self
            .rows
            .into_inner()
            .map_err(|error| StoreError::encoding_parquet(&path, error))?;
        file.suspend()
            .map_err(|source| StoreError::Write { path, source })?;
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

/// A Parquet file that is read batch by batch and whose digest is checked after the last one.
pub(crate) struct Reader {
    path: PathBuf,
    rows: ParquetRecordBatchReader,
    schema: SchemaRef,
    provenance: Provenance,
    expected: RowDigest,
    found: RowDigest,
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
        guard(path, || Self::opened(path, kind, rows_per_batch, check))
    }

    fn opened(
        path: &Path,
        kind: Kind,
        rows_per_batch: usize,
        check: impl FnOnce(&Schema) -> Result<(), String>,
    ) -> Result<Self, StoreError> {
        let builder = builder(path, Origin::Own, ArrowReaderOptions::default())?;
        let schema = SchemaRef::clone(builder.schema());
        let entries: BTreeMap<String, String> = builder
            .metadata()
            .file_metadata()
            .key_value_metadata()
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((entry.key.clone(), entry.value.clone()?)))
            .collect();
        let (provenance, expected) =
            Provenance::open(&entries, kind, &schema).map_err(|source| StoreError::Metadata {
                path: path.to_owned(),
                source,
            })?;
        check(&schema).map_err(|what| StoreError::malformed(path, what))?;
        let claim = builder.metadata().file_metadata().num_rows();
        if u64::try_from(claim) != Ok(expected.rows()) {
            return Err(StoreError::malformed(
                path,
                format_args!(
                    "it claims {}; expected {}",
                    plural(claim, "row"),
                    expected.rows()
                ),
            ));
        }
        let groups = builder.metadata().row_groups().iter();
        let bytes: i64 = groups.map(RowGroupMetaData::total_byte_size).sum();
        let bytes_per_row = u64::try_from(bytes).unwrap_or(0) / expected.rows().max(1);
        let rows = DECODED_BYTES / bytes_per_row.max(1);
        let reader = builder
            .with_batch_size(rows_per_batch.min(rows as usize).max(1))
            .build()
            .map_err(|error| StoreError::decoding_parquet(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            rows: reader,
            schema,
            provenance,
            expected,
            found: RowDigest::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    pub(crate) fn digest(&self) -> RowDigest {
        self.expected
    }

    /// The next batch; after the last one the digest is checked, once.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let path = self.path.clone();
        match guard(&path, || self.decode())? {
            Some(batch) => Ok(Some(batch)),
            None if self.found == self.expected => Ok(None),
            None => Err(StoreError::Digest {
                path,
                expected: self.expected,
                found: self.found,
            }),
        }
    }

    /// The next batch, added to the digest.
    fn decode(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        let Some(batch) = self
            .rows
            .next()
            .transpose()
            .map_err(|error| StoreError::decoding_arrow(&self.path, "Parquet", &error))?
        else {
            return Ok(None);
        };
        check_ids(&batch).map_err(|what| StoreError::malformed(&self.path, what))?;
        self.found
            .update(&batch)
            .map_err(|error| StoreError::malformed(&self.path, error))?;
        Ok(Some(batch))
    }

    pub(crate) fn into_table(mut self) -> Result<Table, StoreError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next_batch()? {
            batches.push(batch);
        }
        Ok(Table {
            batches,
            provenance: self.provenance,
            digest: self.expected,
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

/// Opens a Parquet file for reading. Its footer is within the limits, and its pages will be.
pub(crate) fn builder(
    path: &Path,
    origin: Origin,
    options: ArrowReaderOptions,
) -> Result<ParquetRecordBatchReaderBuilder<PagedFile>, StoreError> {
    let file = open_input(path)?;
    let unread = |source| StoreError::Read {
        path: path.to_owned(),
        source,
    };
    let bad = |what: String| {
        StoreError::malformed(path, format_args!("not a readable Parquet file: {what}"))
    };
    let broken = |error| StoreError::decoding_parquet(path, &error);
    let len = file.metadata().map_err(unread)?.len();
    let footer = read_footer(&file, len).map_err(unread)?.map_err(bad)?;
    let metadata = ParquetMetaDataReader::decode_metadata(&footer).map_err(broken)?;
    let paged = PagedFile::new(file, len, &metadata, origin).map_err(bad)?;
    let metadata = ArrowReaderMetadata::try_new(Arc::new(metadata), options).map_err(broken)?;
    Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(
        paged, metadata,
    ))
}

/// Checks that no id is longer than the limit.
pub(crate) fn check_ids(batch: &RecordBatch) -> Result<(), String> {
    let lengths = batch["id"].as_string::<i32>().offsets().lengths();
    match lengths.max() {
        Some(longest) if longest > ID_BYTES => Err(format!(
            "an id has {longest} bytes; expected at most {ID_BYTES}"
        )),
        _ => Ok(()),
    }
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
