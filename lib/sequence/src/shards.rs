//! The shards of a set while it is made.
//!
//! Rows are encoded by tasks, a row group each. Row groups reach their files in the order in which they were filled: files do
//! not depend on the number of threads.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use plmkit_contract::{Provenance, SPECIAL_TOKENS, ShardRow, ShardSummary};
use plmkit_store::{
    FileSummary, Finished, RowGroup, RowGroupEncoder, ShardWriter, StoreError, encode_rows,
    row_bytes, shard_encoder,
};

use crate::assignment::ShardKey;
use crate::policy::Policy;
use crate::protein::{Protein, rows};
use crate::records::{Record, Records};
use crate::tasks::{Task, Tasks};

/// A row group ends with the protein in which it reaches this many bytes.
const ROW_GROUP_BYTES: usize = 8 << 20;

/// The most bytes of rows that wait for their row groups, in all shards together. Both limits decide the bytes of files, so that
/// neither may depend on threads or time.
const WAITING_BYTES: usize = 128 << 20;

/// The shards that are not complete.
pub(crate) struct Shards<'a, 'scope> {
    folder: &'a Path,
    policy: Policy,
    /// The bytes of rows that wait for their row groups.
    waiting: usize,
    tasks: Tasks<'a, 'scope>,
    encoder: Arc<RowGroupEncoder>,
    open: BTreeMap<ShardKey, OpenShard>,
    /// Row groups that are being encoded, in the order in which they were filled.
    encoding: VecDeque<Encoding>,
    /// The most of them.
    most_encoding: usize,
    /// Memory of proteins that were encoded.
    spare: Vec<Proteins>,
}

struct OpenShard {
    writer: ShardWriter,
    next: Proteins,
    residues: u64,
}

/// The proteins of a row group.
#[derive(Default)]
struct Proteins {
    /// Their headers and the residues to embed.
    records: Records,
    /// The ordinal and the length of each.
    places: Vec<(u64, u32)>,
    /// The bytes of their rows.
    bytes: usize,
}

impl Proteins {
    /// Removes all, and keeps the memory.
    fn clear(&mut self) {
        self.records.clear();
        self.places.clear();
        self.bytes = 0;
    }

    /// Returns their rows.
    fn rows(&self, policy: &Policy) -> Vec<ShardRow<'_>> {
        let proteins = self.places.iter().zip(self.records.iter());
        let proteins = proteins.map(|(&(ordinal, length), record)| Protein {
            ordinal,
            id: record.id,
            description: record.description,
            residues: record.sequence,
            length,
        });
        rows(policy, proteins)
    }
}

struct Encoding {
    shard: ShardKey,
    /// The row group, and its proteins, whose memory is used again.
    group: Task<(Result<RowGroup, StoreError>, Proteins)>,
}

/// A complete shard that is not published yet, and what the manifest says of it.
pub(crate) type FinishedShard = (ShardSummary, Finished<FileSummary>);

impl<'a, 'scope> Shards<'a, 'scope> {
    /// Starts without shards, which will be in `folder`. At most `most_encoding` row groups are encoded at once.
    pub(crate) fn new(
        folder: &'a Path,
        policy: Policy,
        tasks: Tasks<'a, 'scope>,
        most_encoding: usize,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            folder,
            policy,
            waiting: 0,
            tasks,
            encoder: Arc::new(shard_encoder(folder)?),
            open: BTreeMap::new(),
            encoding: VecDeque::new(),
            most_encoding,
            spare: Vec::new(),
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

    /// Adds the rows of a protein.
    pub(crate) fn push(&mut self, key: ShardKey, protein: Protein<'_>) -> Result<(), StoreError> {
        let (mut bytes, mut residues) = (0, 0);
        for window in self.policy.windows(protein.length) {
            bytes += row_bytes(protein.id, protein.description, window.len());
            residues += window.len() as u64;
        }
        let shard = self.shard(key)?;
        shard.residues += residues;
        let next = &mut shard.next;
        next.bytes += bytes;
        next.places.push((protein.ordinal, protein.length));
        next.records.push(Record {
            id: protein.id,
            description: protein.description,
            sequence: protein.residues,
        });
        let full = next.bytes >= ROW_GROUP_BYTES;
        self.waiting += bytes;
        if full {
            self.end_row_group(key)?;
        } else if self.waiting > WAITING_BYTES {
            self.end_largest()?;
        }
        Ok(())
    }

    /// Ends the row groups that have at least as many bytes as the mean.
    fn end_largest(&mut self) -> Result<(), StoreError> {
        let mean = self.waiting / self.open.len();
        let open = self.open.iter();
        let largest = open.filter(|(_, shard)| shard.next.bytes >= mean);
        let largest: Vec<ShardKey> = largest.map(|(key, _)| *key).collect();
        largest
            .into_iter()
            .try_for_each(|key| self.end_row_group(key))
    }

    /// Ends the last row group of a shard that gets no more rows.
    pub(crate) fn close(&mut self, key: ShardKey) -> Result<(), StoreError> {
        self.end_row_group(key)
    }

    fn end_row_group(&mut self, key: ShardKey) -> Result<(), StoreError> {
        if self.shard(key)?.next.records.is_empty() {
            return Ok(());
        }
        let next = self.spare.pop().unwrap_or_default();
        let mut proteins = std::mem::replace(&mut self.shard(key)?.next, next);
        self.waiting -= proteins.bytes;
        let (policy, encoder) = (self.policy, Arc::clone(&self.encoder));
        let path = self.folder.join(key.file_name());
        self.encoding.push_back(Encoding {
            shard: key,
            group: self.tasks.start(move || {
                let group = encode_rows(&path, &proteins.rows(&policy), &encoder);
                proteins.clear();
                (group, proteins)
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
        let (group, proteins) = group.wait();
        // The spares of more shards would hold more memory than the rows that wait.
        if self.open.len() * ROW_GROUP_BYTES <= WAITING_BYTES {
            self.spare.push(proteins);
        }
        self.shard(shard)?.writer.append(&group?)
    }

    /// Completes all shards and returns them in order.
    pub(crate) fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<Vec<FinishedShard>, StoreError> {
        let keys: Vec<ShardKey> = self.open.keys().copied().collect();
        for key in keys {
            self.end_row_group(key)?;
        }
        while !self.encoding.is_empty() {
            self.write_first()?;
        }
        let provenance = Arc::new(provenance.clone());
        let tasks = self.tasks;
        let finished = self.open.into_iter().map(|(key, shard)| {
            let provenance = Arc::clone(&provenance);
            tasks.start(move || finish_shard(key, shard, &provenance))
        });
        // All are started before the first is waited for.
        let finished: Vec<Task<_>> = finished.collect();
        finished.into_iter().map(Task::wait).collect()
    }
}

/// Completes a shard and syncs it to the disk.
fn finish_shard(
    key: ShardKey,
    shard: OpenShard,
    provenance: &Provenance,
) -> Result<FinishedShard, StoreError> {
    let mut file = shard.writer.finish(provenance)?;
    file.sync()?;
    let digest = file.summary().digest;
    let summary = ShardSummary {
        file: key.file_name(),
        rows: digest.rows(),
        residues: shard.residues,
        tokens: shard.residues + digest.rows() * u64::from(SPECIAL_TOKENS),
        digest: digest.to_string(),
    };
    Ok((summary, file))
}
