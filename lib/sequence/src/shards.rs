//! The shards of a set while it is made.
//!
//! Rows are encoded by tasks, a row group each. Row groups reach their files in the order in which they were filled: files do
//! not depend on the number of threads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use plmkit_contract::{
    Provenance, RowsBuilder, SPECIAL_TOKENS, ShardRow, ShardSummary, shard_schema,
};
use plmkit_store::{
    AtomicFile, RowGroup, RowGroupEncoder, ShardWriter, StoreError, UnfinishedFolder, encode_rows,
    row_bytes, shard_encoder,
};
use rayon::ScopeFifo;

use crate::policy::Policy;
use crate::shard_name::ShardKey;
use crate::tasks;

/// A row group ends with the protein in which it reaches this many bytes.
const ROW_GROUP_BYTES: usize = 8 << 20;

/// The most bytes of rows that wait for their row groups, in all shards together. Both limits decide the bytes of files, so that
/// neither may depend on threads or time.
const WAITING_BYTES: usize = 128 << 20;

/// The shards that are not complete.
pub(crate) struct Shards<'a, 'scope> {
    folder: &'scope UnfinishedFolder,
    policy: Policy,
    /// The bytes of rows that wait for their row groups.
    waiting: usize,
    tasks: &'a ScopeFifo<'scope>,
    encoder: Arc<RowGroupEncoder>,
    open: BTreeMap<ShardKey, OpenShard>,
    /// Row groups that are being encoded, in the order in which they were filled.
    encoding: VecDeque<(ShardKey, Receiver<Result<RowGroup, StoreError>>)>,
    /// The most of them.
    most_encoding: usize,
}

struct OpenShard {
    writer: ShardWriter,
    /// The rows of the next row group, and their bytes.
    rows: RowsBuilder,
    bytes: usize,
    residues: u64,
}

impl<'a, 'scope> Shards<'a, 'scope> {
    /// Starts without shards, which will be in `folder`. At most `most_encoding` row groups are encoded at once.
    pub(crate) fn new(
        folder: &'scope UnfinishedFolder,
        policy: Policy,
        tasks: &'a ScopeFifo<'scope>,
        most_encoding: usize,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            folder,
            policy,
            waiting: 0,
            tasks,
            encoder: Arc::new(shard_encoder(folder.path())?),
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
            let path = self.folder.file(&key.file_name());
            let shard = OpenShard {
                writer: ShardWriter::with_encoder(&path, Arc::clone(&self.encoder))?,
                rows: RowsBuilder::new(shard_schema()),
                bytes: 0,
                residues: 0,
            };
            self.open.insert(key, shard);
        }
        Ok(self.open.get_mut(&key).expect("it is open"))
    }

    /// Adds the rows of a protein.
    pub(crate) fn push(&mut self, key: ShardKey, protein: ShardRow<'_>) -> Result<(), StoreError> {
        let policy = self.policy;
        let shard = self.shard(key)?;
        let before = shard.bytes;
        for row in policy.rows(protein) {
            shard.rows.push(&row);
            shard.bytes += row_bytes(&row);
            shard.residues += row.sequence.len() as u64;
        }
        let (added, is_full) = (shard.bytes - before, shard.bytes >= ROW_GROUP_BYTES);
        self.waiting += added;
        if is_full {
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
        let largest = open.filter(|(_, shard)| shard.bytes >= mean);
        let largest: Vec<ShardKey> = largest.map(|(key, _)| *key).collect();
        largest
            .into_iter()
            .try_for_each(|key| self.end_row_group(key))
    }

    /// Ends the current row group of a shard.
    pub(crate) fn end_row_group(&mut self, key: ShardKey) -> Result<(), StoreError> {
        let shard = self.shard(key)?;
        if shard.rows.is_empty() {
            return Ok(());
        }
        let rows = shard.rows.batch();
        let bytes = std::mem::take(&mut shard.bytes);
        self.waiting -= bytes;
        let encoder = Arc::clone(&self.encoder);
        let path = self.folder.file(&key.file_name());
        let group = tasks::start(self.tasks, move || encode_rows(&path, &rows, &encoder));
        self.encoding.push_back((key, group));
        while self.encoding.len() > self.most_encoding {
            self.write_first()?;
        }
        Ok(())
    }

    /// Writes the first row group that was started.
    fn write_first(&mut self) -> Result<(), StoreError> {
        let Some((key, group)) = self.encoding.pop_front() else {
            return Ok(());
        };
        let group = tasks::wait(group)?;
        self.folder.check()?;
        self.shard(key)?.writer.append(&group)
    }

    /// Completes all shards and returns them in order, each with what the manifest says of it.
    pub(crate) fn finish(
        mut self,
        provenance: &Provenance,
    ) -> Result<Vec<(ShardSummary, AtomicFile)>, StoreError> {
        let keys: Vec<ShardKey> = self.open.keys().copied().collect();
        for key in keys {
            self.end_row_group(key)?;
        }
        while !self.encoding.is_empty() {
            self.write_first()?;
        }
        let provenance = Arc::new(provenance.clone());
        let (scope, folder) = (self.tasks, self.folder);
        let finished = self.open.into_iter().map(|(key, shard)| {
            let provenance = Arc::clone(&provenance);
            tasks::start(scope, move || {
                folder.check()?;
                finish_shard(key, shard, &provenance)
            })
        });
        // All are started before the first is waited for.
        let finished: Vec<Receiver<_>> = finished.collect();
        finished.into_iter().map(tasks::wait).collect()
    }
}

/// Completes a shard and syncs it to the disk. Returns what the manifest says of it, and the file, which is not published.
fn finish_shard(
    key: ShardKey,
    shard: OpenShard,
    provenance: &Provenance,
) -> Result<(ShardSummary, AtomicFile), StoreError> {
    let (digest, mut file) = shard.writer.finish(provenance)?;
    file.sync()?;
    // All shards wait for their names.
    file.suspend()?;
    let summary = ShardSummary {
        file: key.file_name(),
        rows: digest.rows(),
        residues: shard.residues,
        tokens: shard.residues + digest.rows() * u64::from(SPECIAL_TOKENS),
        digest: digest.to_string(),
    };
    Ok((summary, file))
}
