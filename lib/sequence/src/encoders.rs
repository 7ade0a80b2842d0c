//! Threads that write shards.
//!
//! A shard belongs to one thread, which receives its rows in input order: files do not depend on the number of threads.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use plmkit_contract::{Provenance, SPECIAL_TOKENS, ShardSummary};
use plmkit_store::{FileSummary, Finished, ShardWriter, StoreError};

use crate::assignment::ShardKey;
use crate::protein::Protein;

/// The most proteins in the queue of a thread. Parsing and writing overlap, and memory stays small.
const QUEUE: usize = 64;

/// The writer threads.
pub(crate) struct Encoders<'scope> {
    threads: Vec<Encoder<'scope>>,
}

struct Encoder<'scope> {
    commands: SyncSender<ShardCommand>,
    thread: ScopedJoinHandle<'scope, Result<Vec<EncodedShard>, StoreError>>,
}

/// A command to a thread. If its queue ends without `Finish`, the thread discards its shards.
enum ShardCommand {
    /// Create a shard, which may stay empty.
    Open(ShardKey),
    /// Append the rows of a protein.
    Push(ShardKey, Box<Protein>),
    /// Free the resources of a shard that gets no more rows.
    Close(ShardKey),
    /// Complete all shards.
    Finish(Box<Provenance>),
}

/// A complete shard that is not published yet.
pub(crate) struct EncodedShard {
    pub(crate) key: ShardKey,
    pub(crate) summary: ShardSummary,
    pub(crate) file: Finished<FileSummary>,
}

impl<'scope> Encoders<'scope> {
    /// Starts `count` threads that write into `folder`. Each shard may keep `row_group_bytes` in memory.
    pub(crate) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        count: usize,
        folder: &'env Path,
        row_group_bytes: usize,
    ) -> io::Result<Self> {
        let threads = (0..count)
            .map(|_| {
                let (commands, queue) = sync_channel(QUEUE);
                let shards = OpenShards {
                    folder,
                    row_group_bytes,
                    open: BTreeMap::new(),
                };
                let thread = Builder::new().spawn_scoped(scope, move || shards.run(&queue))?;
                Ok(Encoder { commands, thread })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { threads })
    }

    pub(crate) fn open(&mut self, key: ShardKey) -> Result<(), StoreError> {
        self.send(key, ShardCommand::Open(key))
    }

    pub(crate) fn push(&mut self, key: ShardKey, protein: Protein) -> Result<(), StoreError> {
        self.send(key, ShardCommand::Push(key, Box::new(protein)))
    }

    pub(crate) fn close(&mut self, key: ShardKey) -> Result<(), StoreError> {
        self.send(key, ShardCommand::Close(key))
    }

    fn send(&mut self, key: ShardKey, command: ShardCommand) -> Result<(), StoreError> {
        let i = key.index % self.threads.len();
        match self.threads[i].commands.send(command) {
            Ok(()) => Ok(()),
            // A thread hangs up early only if it failed.
            Err(_) => self.threads.swap_remove(i).join().map(|_| ()),
        }
    }

    /// Completes all shards and returns them in order.
    pub(crate) fn finish(self, provenance: &Provenance) -> Result<Vec<EncodedShard>, StoreError> {
        for encoder in &self.threads {
            // A failed thread is joined below.
            let _ = encoder
                .commands
                .send(ShardCommand::Finish(Box::new(provenance.clone())));
        }
        let mut shards = Vec::new();
        for encoder in self.threads {
            shards.extend(encoder.join()?);
        }
        shards.sort_by_key(|shard| shard.key);
        Ok(shards)
    }
}

impl Encoder<'_> {
    fn join(self) -> Result<Vec<EncodedShard>, StoreError> {
        drop(self.commands);
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// The shards of one thread.
struct OpenShards<'env> {
    folder: &'env Path,
    row_group_bytes: usize,
    open: BTreeMap<ShardKey, OpenShard>,
}

struct OpenShard {
    writer: ShardWriter,
    residues: u64,
}

impl OpenShards<'_> {
    fn run(mut self, queue: &Receiver<ShardCommand>) -> Result<Vec<EncodedShard>, StoreError> {
        for command in queue {
            match command {
                ShardCommand::Open(key) => {
                    self.shard(key)?;
                }
                ShardCommand::Push(key, protein) => self.shard(key)?.push(&protein)?,
                ShardCommand::Close(key) => self.shard(key)?.writer.suspend()?,
                ShardCommand::Finish(provenance) => return self.finish(&provenance),
            }
        }
        Ok(Vec::new())
    }

    fn shard(&mut self, key: ShardKey) -> Result<&mut OpenShard, StoreError> {
        match self.open.entry(key) {
            Entry::Occupied(shard) => Ok(shard.into_mut()),
            Entry::Vacant(place) => {
                let path = self.folder.join(key.file_name());
                Ok(place.insert(OpenShard {
                    writer: ShardWriter::create(&path, self.row_group_bytes)?,
                    residues: 0,
                }))
            }
        }
    }

    fn finish(self, provenance: &Provenance) -> Result<Vec<EncodedShard>, StoreError> {
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
            Ok(EncodedShard { key, summary, file })
        });
        finished.collect()
    }
}

impl OpenShard {
    fn push(&mut self, protein: &Protein) -> Result<(), StoreError> {
        for row in protein.rows() {
            self.writer.push(&row)?;
            self.residues += row.sequence.len() as u64;
        }
        Ok(())
    }
}
