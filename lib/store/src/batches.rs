//! Batches files: Arrow IPC files with one record batch for each batch of the model.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::writer::FileWriter;
use arrow_ipc::{Block, root_as_footer};
use arrow_schema::{Schema, SchemaRef};
use plmkit_contract::{ByteDigest, Kind, Labels, Provenance, RowDigest, batches_schema, key};
use plmkit_kit::Stop;

use crate::checksums::{Checksums, Format};
use crate::parquet::check_digest;
use crate::verified::VerifiedFile;
use crate::{AtomicFile, PackedBatch, StoreError};

/// A batches file under construction.
pub struct BatchesWriter {
    /// Encodes the bytes that are not in the file yet.
    writer: FileWriter<Vec<u8>>,
    file: AtomicFile,
    sums: Checksums,
    digest: RowDigest,
}

impl BatchesWriter {
    /// Starts a file that will be at `path`.
    pub fn create(
        path: &Path,
        labels: Labels,
        provenance: &Provenance,
    ) -> Result<Self, StoreError> {
        // All readers see the metadata of the schema. Entries that depend on the rows follow in the footer.
        let entries = provenance
            .entries(Kind::Batches, RowDigest::default())
            .into_iter()
            .filter(|(name, _)| name != key::ROWS);
        let schema = Schema::clone(&batches_schema(labels))
            .with_metadata(entries.collect::<BTreeMap<_, _>>());
        let writer = FileWriter::try_new(Vec::new(), &schema);
        let mut created = Self {
            writer: writer.map_err(|error| StoreError::encoding_arrow(path, error))?,
            file: AtomicFile::create(path)?,
            sums: Checksums::default(),
            digest: RowDigest::default(),
        };
        created.append()?;
        Ok(created)
    }

    /// Moves the encoded bytes to the file, in segments of their own.
    fn append(&mut self) -> Result<(), StoreError> {
        let bytes = std::mem::take(self.writer.get_mut());
        self.sums.update(&bytes);
        self.sums.end_segment();
        self.file.append(&bytes)
    }

    /// Adds a batch with the columns of [`batches_schema`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        self.digest
            .update(batch)
            .map_err(|error| StoreError::malformed(self.file.path(), error))?;
        let written = self.writer.write(batch);
        written.map_err(|error| StoreError::encoding_arrow(self.file.path(), error))?;
        // Each batch can be read alone.
        self.append()
    }

    /// Writes the footer and publishes the file.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.writer
            .write_metadata(key::ROWS, self.digest.to_string());
        let end = self.writer.into_inner();
        let end = end.map_err(|error| StoreError::encoding_arrow(self.file.path(), error))?;
        self.file.append(&self.sums.seal(Format::ArrowIpc, &end))?;
        self.file.finish()
    }
}

/// A batches file. It is verified when it is opened, and each batch again when it is read: a change in place is detected.
///
/// Token ids and offsets are used in the bytes that were read, without a copy.
#[derive(Debug)]
pub struct BatchesFile {
    file: VerifiedFile,
    decoder: FileDecoder,
    blocks: Vec<Block>,
    schema: SchemaRef,
    provenance: Provenance,
    digest: RowDigest,
    packing: ByteDigest,
}

impl BatchesFile {
    /// Opens a file and verifies all of it. Polls `stop` between batches.
    pub fn open(path: &Path, stop: &Stop) -> Result<Self, StoreError> {
        let mut opened = Self::open_unverified(path)?;
        opened.verify(stop, |_, _| Ok::<_, StoreError>(()))?;
        Ok(opened)
    }

    /// Opens a file and checks its columns and its provenance.
    pub fn open_unverified(path: &Path) -> Result<Self, StoreError> {
        let file = VerifiedFile::open(path, Format::ArrowIpc)?;
        let malformed = |what: &dyn Display| {
            StoreError::malformed(path, format_args!("not a readable Arrow IPC file: {what}"))
        };
        let (schema, entries, blocks, version) = {
            let footer = file.footer();
            let footer = &footer[..footer.len() - Format::ArrowIpc.trailer()];
            let footer = root_as_footer(footer).map_err(|error| malformed(&error))?;
            let schema = footer
                .schema()
                .ok_or_else(|| malformed(&"the footer has no schema"))?;
            let schema = try_fb_to_schema(schema).map_err(|error| malformed(&error))?;
            let mut entries = BTreeMap::from_iter(schema.metadata().clone());
            let late = footer.custom_metadata().into_iter().flatten();
            entries.extend(
                late.filter_map(|entry| Some((entry.key()?.to_owned(), entry.value()?.to_owned()))),
            );
            let blocks = footer.recordBatches().iter().flatten().copied().collect();
            (SchemaRef::new(schema), entries, blocks, footer.version())
        };
        let (provenance, digest) = Provenance::open(&entries, Kind::Batches)
            .map_err(|error| StoreError::content(path, error))?;
        let columns = Kind::Batches.check_columns(&schema);
        columns.map_err(|what| StoreError::malformed(path, what))?;
        Ok(Self {
            file,
            decoder: FileDecoder::new(SchemaRef::clone(&schema), version),
            schema,
            blocks,
            provenance,
            digest,
            packing: ByteDigest::default(),
        })
    }

    /// Verifies all of the file, once, and gives each batch with its index to `each`. Polls `stop` between batches.
    pub fn verify<E: From<StoreError>>(
        &mut self,
        stop: &Stop,
        mut each: impl FnMut(usize, PackedBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut read = RowDigest::default();
        for index in 0..self.len() {
            StoreError::check(stop)?;
            let batch = self.batch(index)?;
            let digested = read.update(batch.record_batch());
            digested.map_err(|what| StoreError::malformed(self.path(), what))?;
            let (ordinals, starts) = (batch.ordinals(), batch.starts().values());
            self.packing.update_packing(ordinals, starts);
            each(index, batch)?;
        }
        self.file.verify_rest(stop)?;
        Ok(check_digest(self.path(), self.digest, read)?)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the label columns.
    pub fn labels(&self) -> Labels {
        Labels::from_schema(&self.schema)
    }

    /// Returns the number of batches.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are no batches, because the shard has no rows.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the provenance of the file.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Returns the digest of all rows, with their number.
    pub fn digest(&self) -> RowDigest {
        self.digest
    }

    /// Returns the digest of the assignment of rows to batches, if the file is [verified](Self::verify).
    pub fn packing(&self) -> &ByteDigest {
        &self.packing
    }

    /// Reads batch `index`, which is less than [`len`](Self::len).
    pub fn batch(&self, index: usize) -> Result<PackedBatch, StoreError> {
        let malformed = |what: String| {
            let what = format_args!("record batch {index}: {what}");
            StoreError::malformed(self.file.path(), what)
        };
        let block = self.blocks.get(index);
        let (block, range) = block
            .and_then(|block| Some((block, range(block)?)))
            .ok_or_else(|| malformed("no such batch".to_owned()))?;
        let bytes = Buffer::from(self.file.read(range)?);
        let batch = self.decoder.read_record_batch(block, &bytes);
        let batch = batch.map_err(|error| malformed(error.to_string()))?;
        batch
            .ok_or_else(|| "expected a record batch, found an empty message".to_owned())
            .and_then(PackedBatch::new)
            .map_err(malformed)
    }
}

/// The bytes of a record batch in the file.
fn range(block: &Block) -> Option<Range<u64>> {
    let start = u64::try_from(block.offset()).ok()?;
    let metadata = u64::try_from(block.metaDataLength()).ok()?;
    let body = u64::try_from(block.bodyLength()).ok()?;
    Some(start..start.checked_add(metadata)?.checked_add(body)?)
}
