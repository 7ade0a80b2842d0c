//! Batches files: Arrow IPC files in which one record batch is one pack.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ipc::Block;
use arrow::ipc::convert::try_fb_to_schema;
use arrow::ipc::reader::FileDecoder;
use arrow::ipc::writer::FileWriter;
use plmkit_contract::{Kind, PackingDigest, Provenance, RowDigest, Stop, batches_schema, key};

use crate::blocks::{check_message, footer, ranges};
use crate::guard::guard;
use crate::mapped::map;
use crate::parquet::same_columns;
use crate::{AtomicFile, FileSummary, PackedBatch, StoreError};

/// A batches file under construction.
pub struct BatchesWriter {
    writer: FileWriter<AtomicFile>,
    provenance: Provenance,
    path: PathBuf,
    digest: RowDigest,
}

impl BatchesWriter {
    /// Starts a file that will be at `path`.
    pub fn create(path: &Path, provenance: Provenance) -> Result<Self, StoreError> {
        // Readers in other languages see the schema's metadata at once; what depends on the rows follows in
        // the footer.
        let entries = provenance
            .seal(Kind::Batches, &batches_schema(), RowDigest::default())
            .into_iter()
            .filter(|(name, _)| name != key::ROWS && name != key::SEAL);
        let schema =
            Schema::clone(&batches_schema()).with_metadata(entries.collect::<BTreeMap<_, _>>());
        let writer = FileWriter::try_new(AtomicFile::create(path)?, &schema)
            .map_err(|error| StoreError::encoding_arrow(path, error))?;
        Ok(Self {
            writer,
            provenance,
            path: path.to_owned(),
            digest: RowDigest::default(),
        })
    }

    /// Adds one pack. `batch` has the columns of [`batches_schema`].
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), StoreError> {
        self.digest
            .update(batch)
            .map_err(|error| StoreError::malformed(&self.path, error))?;
        self.writer
            .write(batch)
            .map_err(|error| StoreError::encoding_arrow(&self.path, error))
    }

    /// Writes the footer and publishes the file.
    pub fn finish(mut self) -> Result<FileSummary, StoreError> {
        let entries = self
            .provenance
            .seal(Kind::Batches, &batches_schema(), self.digest);
        for name in [key::ROWS, key::SEAL] {
            self.writer.write_metadata(name, &entries[name]);
        }
        let file = self
            .writer
            .finish()
            .and_then(|()| self.writer.into_inner())
            .map_err(|error| StoreError::encoding_arrow(&self.path, error))?;
        let bytes = file.written();
        file.finish()?;
        Ok(FileSummary {
            digest: self.digest,
            bytes,
        })
    }
}

/// A memory-mapped batches file, verified when opened.
///
/// Token ids and offsets are used where they lie in the map; nothing is copied or built.
#[derive(Debug)]
pub struct BatchesFile {
    path: PathBuf,
    map: Buffer,
    decoder: FileDecoder,
    blocks: Vec<(Block, Range<usize>)>,
    provenance: Provenance,
    digest: RowDigest,
    packing: PackingDigest,
}

impl BatchesFile {
    /// Maps the file, checks its structure and computes the digest of all its rows. `stop` is looked at between
    /// packs.
    pub fn open(path: &Path, stop: &Stop) -> Result<Self, StoreError> {
        guard(path, || {
            let mut file = Self::mapped(path)?;
            file.verify(stop)?;
            Ok(file)
        })
    }

    fn mapped(path: &Path) -> Result<Self, StoreError> {
        let map = map(path)?;
        let bad = |what: &str| {
            StoreError::malformed(path, format_args!("not a readable Arrow IPC file: {what}"))
        };
        let (schema, entries, blocks, decoder) = {
            let (footer, data) = footer(&map).map_err(|what| bad(&what))?;
            let schema = footer
                .schema()
                .ok_or_else(|| bad("the footer has no schema"))
                .and_then(|schema| {
                    try_fb_to_schema(schema).map_err(|error| bad(&error.to_string()))
                })?;
            if footer
                .dictionaries()
                .is_some_and(|blocks| !blocks.is_empty())
            {
                return Err(bad("expected no dictionaries"));
            }
            let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
            let blocks = ranges(&blocks, data).map_err(|what| bad(&what))?;
            let mut entries: BTreeMap<String, String> = schema
                .metadata()
                .iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            entries.extend(
                footer
                    .custom_metadata()
                    .iter()
                    .flatten()
                    .filter_map(|entry| Some((entry.key()?.to_owned(), entry.value()?.to_owned()))),
            );
            let schema = SchemaRef::new(schema);
            let decoder = FileDecoder::new(SchemaRef::clone(&schema), footer.version());
            (schema, entries, blocks, decoder)
        };
        let (provenance, digest) =
            Provenance::open(&entries, Kind::Batches, &schema).map_err(|source| {
                StoreError::Metadata {
                    path: path.to_owned(),
                    source,
                }
            })?;
        same_columns(&schema, &batches_schema())
            .map_err(|what| StoreError::malformed(path, what))?;
        Ok(Self {
            path: path.to_owned(),
            map,
            decoder,
            blocks,
            provenance,
            digest,
            packing: PackingDigest::default(),
        })
    }

    /// Packs in the file.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether it has no packs, as a shard without rows gives.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Where the packs come from.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The digest of all rows, with their number.
    pub fn digest(&self) -> RowDigest {
        self.digest
    }

    /// Which rows are in which pack, and in which order.
    pub fn packing(&self) -> &PackingDigest {
        &self.packing
    }

    /// Pack `index`, which is less than [`len`](Self::len).
    pub fn batch(&self, index: usize) -> Result<PackedBatch, StoreError> {
        guard(&self.path, || {
            self.decode(index).map_err(|what| {
                StoreError::malformed(&self.path, format_args!("record batch {index}: {what}"))
            })
        })
    }

    fn decode(&self, index: usize) -> Result<PackedBatch, String> {
        let (block, range) = self.blocks.get(index).ok_or("no such batch")?;
        let bytes = self.map.slice_with_length(range.start, range.len());
        check_message(&bytes[..block.metaDataLength() as usize])?;
        let batch = self
            .decoder
            .read_record_batch(block, &bytes)
            .map_err(|error| error.to_string())?
            .ok_or("expected a record batch, found an empty message")?;
        PackedBatch::new(batch)
    }

    fn verify(&mut self, stop: &Stop) -> Result<(), StoreError> {
        let mut found = RowDigest::default();
        for index in 0..self.len() {
            if stop.requested() {
                return Err(StoreError::Stopped);
            }
            let pack = self.batch(index)?;
            found
                .update(pack.record_batch())
                .map_err(|error| StoreError::malformed(&self.path, error))?;
            self.packing
                .update(pack.ordinals().values(), pack.starts().values());
        }
        if found == self.digest {
            Ok(())
        } else {
            Err(StoreError::Digest {
                path: self.path.clone(),
                expected: self.digest,
                found,
            })
        }
    }
}
