//! The shards of a set while it is made.
//!
//! Rows are encoded by tasks, a row group each. Row groups reach their files in the order in which they were filled: files do
//! not depend on the number of threads.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use plmkit_contract::{Provenance, SPECIAL_TOKENS, ShardSummary};
use plmkit_store::{
    FileSummary, Finished, RowGroup, RowGroupEncoder, ShardWriter, StoreError, encode_rows,
};

use crate::assignment::ShardKey;
use crate::prepare::Accepted;
use crate::protein::Protein;
use crate::records::Records;
use crate::tasks::{Task, Tasks};

/// The shards that are not complete.
pub(crate) struct Shards<'a, 'scope> {
    folder: &'a Path,
    row_group_bytes: usize,
    tasks: Tasks<'a, 'scope>,
    encoder: Arc<RowGroupEncoder>,
    open: BTreeMap<ShardKey, OpenShard>,
    /// Row groups that are being encoded, in the order in which they were filled.
    encoding: VecDeque<Encoding>,
    /// The most of them.
    most_encoding: usize,
}

struct OpenShard {
    writer: ShardWriter,
    next: Proteins,
    residues: u64,
}

/// The proteins of a row group.
#[derive(Default)]
struct Proteins {
    records: Records,
    /// The ordinal of each record, and what was accepted of it.
    accepted: Vec<(u64, Accepted)>,
    /// The bytes of their rows.
    bytes: usize,
}

impl Proteins {
    fn iter(&self) -> impl Iterator<Item = Protein<'_>> {
        let accepted = self.accepted.iter().zip(self.records.iter());
        accepted.map(|((ordinal, accepted), record)| accepted.protein(*ordinal, record))
    }
}

struct Encoding {
    shard: ShardKey,
    group: Task<Result<RowGroup, StoreError>>,
}

/// A complete shard that is not published yet.
pub(crate) struct EncodedShard {
    pub(crate) summary: ShardSummary,
    pub(crate) file: Finished<FileSummary>,
}

impl<'a, 'scope> Shards<'a, 'scope> {
    /// Starts without shards. Each may keep `row_group_bytes` in memory, and so may `most_encoding` row groups.
    pub(crate) fn new(
        folder: &'a Path,
        row_group_bytes: usize,
        tasks: Tasks<'a, 'scope>,
        most_encoding: usize,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            folder,
            row_group_bytes,
            tasks,
            encoder: Arc::new(RowGroupEncoder::for_shards(folder)?),
            open: BTreeMap::new(),
            encoding: VecDeque::new(),
            most_encoding,
        })
    }

    /// Creates a shard, which may stay empty.
    pub(crate) fn open(&mut self, key: ShardKey) -> Result<(), StoreError> {
        self.shard(key).map(|_| ())
    }

    fn shard(&mut self, key: ShardKey) -> Result<&mut OpenShard, StoreError> {
        if !self.open.contains_key(&key) {
            let path = self.folder.join(key.file_name());
            let shard = OpenShard {
                writer: ShardWriter::with_encoder(&path, Arc::clone(&self.encoder))?,
                next: Proteins::default(),
                residues: 0,
            };
            self.open.insert(key, shard);
        }
        Ok(self.open.get_mut(&key).expect("it is open"))
    }

    /// Adds the rows of a protein, which is what was `accepted` of a record.
    pub(crate) fn push(
        &mut self,
        key: ShardKey,
        accepted: Accepted,
        protein: Protein<'_>,
    ) -> Result<(), StoreError> {
        let limit = self.row_group_bytes;
        let shard = self.shard(key)?;
        shard.residues += protein.row_residues();
        let next = &mut shard.next;
        next.bytes += protein.row_bytes();
        next.accepted.push((protein.ordinal, accepted));
        next.records.push(protein.id, protein.description);
        next.records.extend_last(protein.residues);
        if next.bytes >= limit {
            self.end_row_group(key)?;
        }
        Ok(())
    }

    /// Ends the last row group of a shard that gets no more rows.
    pub(crate) fn close(&mut self, key: ShardKey) -> Result<(), StoreError> {
        self.end_row_group(key)
    }

    fn end_row_group(&mut self, key: ShardKey) -> Result<(), StoreError> {
        let shard = self.shard(key)?;
        let proteins = std::mem::take(&mut shard.next);
        if proteins.records.is_empty() {
            return Ok(());
        }
        let encoder = Arc::clone(&self.encoder);
        let path = self.folder.join(key.file_name());
        self.encoding.push_back(Encoding {
            shard: key,
            group: self.tasks.start(move || {
                let rows = proteins.iter().flat_map(Protein::rows);
                encode_rows(&path, rows, &encoder)
            }),
        });
        while self.encoding.len() > self.most_encoding {
            self.write_first()?;
        }
        Ok(())
    }

    /// Writes the first row group that was started.
    fn write_first(&mut self) -> Result<(), StoreError> {
        let Some(Encoding { shard, group }) = self.encoding.pop_front() else {
            return Ok(());
        };
        let group = group.wait()?;
        self.shard(shard)?.writer.append(&group)
    }

    /// Completes all shards and returns them in order.
    pub(crate) fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<Vec<EncodedShard>, StoreError> {
        let keys: Vec<ShardKey> = self.open.keys().copied().collect();
        for key in keys {
            self.end_row_group(key)?;
        }
        while !self.encoding.is_empty() {
            self.write_first()?;
        }
        let finished = self.open.into_iter().map(|(key, shard)| {
            let file = shard.writer.finish(provenance)?;
            let digest = file.summary().digest;
            let summary = ShardSummary {
                file: key.file_name(),
                rows: digest.rows(),
                residues: shard.residues,
                tokens: shard.residues + digest.rows() * u64::from(SPECIAL_TOKENS),
                digest: digest.to_string(),
            };
            Ok(EncodedShard { summary, file })
        });
        finished.collect()
    }
}
