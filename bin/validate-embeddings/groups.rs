//! Reads all files on all cores: each shard beside the embeddings that were made of it.
//!
//! A shard says which batches it becomes, and an embeddings file which batches it was made from. So each file needs only
//! the rows of its own shard in memory. What does not fit together in this way is read in the end as one group.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use plmkit_check::{Criteria, ExpectedRows, Findings, Validator};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Labels, ListedFile, RowDigest};
use plmkit_store::{EmbeddingsReader, Shard, StoreError};

use crate::args::Args;
use crate::file::FileReading;
use crate::proteins::each_protein;
use crate::recompute::{Quotas, chosen, open};

/// An embeddings file, as its footer describes it.
pub(crate) struct EmbeddingsFile {
    /// Its position on the command line.
    pub(crate) position: usize,
    pub(crate) path: PathBuf,
    /// Its rows.
    pub(crate) rows: u64,
    /// The batches that it was made from.
    inputs: Vec<String>,
}

/// What was read of a group of files.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) findings: Findings,
    /// Position on the command line, and the file.
    pub(crate) shards: Vec<(usize, ListedFile)>,
    pub(crate) embeddings: Vec<(usize, ListedFile)>,
    /// Name and first ordinal of each embeddings file with rows.
    pub(crate) begins: Vec<(String, u64)>,
}

/// How files are read.
pub(crate) struct Reading<'a> {
    pub(crate) args: &'a Args,
    pub(crate) criteria: &'a Criteria,
    pub(crate) stop: &'a Stop,
    /// The columns beside the key, which the digest of batches depends on.
    pub(crate) labels: Labels,
    /// Whether a row of the embeddings is a whole protein, whatever its windows.
    pub(crate) stitched: bool,
    /// How many rows of each shard were computed again, and the seed of their choice, if any were.
    pub(crate) sampled: Option<(Quotas, u64)>,
}

impl EmbeddingsFile {
    pub(crate) fn new(position: usize, reader: &EmbeddingsReader) -> Self {
        Self {
            position,
            path: reader.path().to_owned(),
            rows: reader.digest().rows(),
            inputs: reader.provenance().inputs.clone(),
        }
    }
}

impl Group {
    /// Adds what was read after it.
    fn merge(&mut self, other: Self) {
        self.findings.merge(other.findings);
        self.shards.extend(other.shards);
        self.embeddings.extend(other.embeddings);
        self.begins.extend(other.begins);
    }

    /// Puts files in the order given.
    fn sort(mut self) -> Self {
        self.shards.sort_by_key(|file| file.0);
        self.embeddings.sort_by_key(|file| file.0);
        self
    }
}

/// Results of items that may end in any order, put together in the order of the items as they come: memory does not grow with their
/// number.
struct InOrder {
    all: Group,
    /// The item whose result is added next.
    next: usize,
    /// Results of later items.
    waiting: BTreeMap<usize, Group>,
    /// The first item that failed.
    failed: Option<(usize, Fault)>,
}

impl InOrder {
    fn add(&mut self, place: usize, result: Result<Group, Fault>) {
        match result {
            Ok(group) => {
                self.waiting.insert(place, group);
                while let Some(group) = self.waiting.remove(&self.next) {
                    self.all.merge(group);
                    self.next += 1;
                }
            }
            Err(fault) => {
                if self.failed.as_ref().is_none_or(|(first, _)| place < *first) {
                    self.failed = Some((place, fault));
                }
            }
        }
    }
}

impl Reading<'_> {
    /// Reads all shards and embeddings.
    pub(crate) fn read(&self, embeddings: Vec<EmbeddingsFile>) -> Result<Group, Fault> {
        let shards: Vec<(usize, &PathBuf)> = self.args.shards.iter().enumerate().collect();
        if shards.is_empty() {
            let read = self.on_threads(&embeddings, |file| self.group(&[], &[], &[file]));
            return Ok(read?.sort());
        }
        let mut by_batches: HashMap<String, Vec<EmbeddingsFile>> = HashMap::new();
        let mut rest = Vec::new();
        for file in embeddings {
            match file.inputs.as_slice() {
                [batches] => by_batches.entry(batches.clone()).or_default().push(file),
                _ => rest.push(file),
            }
        }
        let waiting = Mutex::new(by_batches);
        let take = |batches: &str| {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.remove(batches).unwrap_or_default()
        };
        let alone = Mutex::new(Vec::new());
        let mut read = self.on_threads(&shards, |&(position, path)| {
            let shard = self.shard(path)?;
            let batches = batches_digest(&shard, self.labels)?;
            let embeddings = take(&batches.to_string());
            if embeddings.is_empty() {
                let mut alone = alone.lock().unwrap_or_else(PoisonError::into_inner);
                alone.push((position, path));
                return Ok(Group::default());
            }
            let embeddings: Vec<&EmbeddingsFile> = embeddings.iter().collect();
            self.group(&[(position, path)], &[(shard, batches)], &embeddings)
        })?;
        let mut alone = alone.into_inner().unwrap_or_else(PoisonError::into_inner);
        alone.sort_unstable();
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        rest.extend(waiting.into_values().flatten());
        rest.sort_by_key(|file| file.position);
        if !(alone.is_empty() && rest.is_empty()) {
            let shards = alone.iter().map(|(_, path)| {
                let shard = self.shard(path)?;
                let batches = batches_digest(&shard, self.labels)?;
                Ok((shard, batches))
            });
            let shards = shards.collect::<Result<Vec<_>, Fault>>()?;
            let rest: Vec<&EmbeddingsFile> = rest.iter().collect();
            read.merge(self.group(&alone, &shards, &rest)?);
        }
        Ok(read.sort())
    }

    /// Reads what belongs to each item, on as many threads as there are to be. Returns all, in the order of the items, or the error of
    /// the first item that has one.
    fn on_threads<I: Sync>(
        &self,
        items: &[I],
        work: impl Fn(&I) -> Result<Group, Fault> + Sync,
    ) -> Result<Group, Fault> {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(usize::MAX);
        let results = Mutex::new(InOrder {
            all: Group::default(),
            next: 0,
            waiting: BTreeMap::new(),
            failed: None,
        });
        let run = || {
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                // Items after one that failed do not matter; those before it may fail, too.
                let Some(item) = items
                    .get(place)
                    .filter(|_| place < failed.load(Ordering::Relaxed))
                else {
                    return;
                };
                let result = work(item);
                if result.is_err() {
                    failed.fetch_min(place, Ordering::Relaxed);
                }
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.add(place, result);
            }
        };
        let threads = self.args.threads.map_or_else(
            || thread::available_parallelism().map_or(1, NonZero::get),
            NonZero::get,
        );
        thread::scope(|scope| {
            for _ in 1..threads.min(items.len()) {
                // Where no more threads can be had, those that are there do the work.
                if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                    break;
                }
            }
            run();
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        match results.failed {
            Some((_, fault)) => Err(fault),
            None => Ok(results.all),
        }
    }

    fn shard(&self, path: &Path) -> Result<Shard, Fault> {
        self.check_stop()?;
        open(path)
    }

    /// Reads embeddings against the rows of their shards. `paths` are those of `shards`, with their positions.
    fn group(
        &self,
        paths: &[(usize, &PathBuf)],
        shards: &[(Shard, RowDigest)],
        embeddings: &[&EmbeddingsFile],
    ) -> Result<Group, Fault> {
        let expected = (!self.args.shards.is_empty()).then(|| {
            let mut expected = ExpectedRows::default();
            for (shard, _) in shards {
                if self.stitched {
                    each_protein(shard, |protein| expected.push(protein));
                } else {
                    shard.rows().iter().for_each(|row| expected.push(&row.key));
                }
            }
            expected
        });
        let mut validator = Validator::new(self.criteria, expected);
        let mut group = Group::default();
        for ((position, path), (shard, batches)) in paths.iter().zip(shards) {
            let name = self.args.name(path);
            validator.add_shard(&name, &shard.provenance, shard.digest, *batches);
            if !self.criteria.aliases.is_empty() {
                each_protein(shard, |protein| validator.add_protein(protein));
            }
            group
                .shards
                .push((*position, ListedFile::from_rows(&name, shard.digest)));
        }
        if let Some((quotas, seed)) = &self.sampled {
            let aliases = &self.criteria.aliases;
            let shards = paths.iter().zip(shards);
            let sample = shards.flat_map(|((_, path), (shard, _))| {
                chosen(shard, quotas.of(path), *seed, self.stitched, aliases)
            });
            validator.set_sample(sample.collect());
        }
        for file in embeddings {
            let name = self.args.name(&file.path);
            let mut reader = FileReading::new(&mut validator, file, &name);
            let digest = reader.read(self)?;
            // The first rows may be rejected, so that the shard says where its part begins.
            let first = match shards {
                [(shard, _)] => shard.rows().iter().next().map(|row| row.key.ordinal),
                [] => None,
                _ => reader.first,
            };
            group
                .begins
                .extend(first.map(|first| (name.clone(), first)));
            let input = ListedFile::from_rows(&name, digest);
            group.embeddings.push((file.position, input));
        }
        group.findings = validator.finish();
        Ok(group)
    }

    pub(crate) fn check_stop(&self) -> Result<(), StoreError> {
        if self.stop.requested() {
            Err(StoreError::Stopped)
        } else {
            Ok(())
        }
    }
}

/// The row digest of the batches file that pack-batches makes of a shard, whatever its options but the labels: the digest does not
/// depend on how rows are packed.
pub(crate) fn batches_digest(shard: &Shard, labels: Labels) -> Result<RowDigest, Fault> {
    let rows = shard.rows();
    let mut digest = RowDigest::default();
    let mut next = 0;
    for batch in &shard.batches {
        let end = next + batch.num_rows();
        let batch = shard.pack((next..end).map(|row| rows.get(row)), labels)?;
        let digested = digest.update(&batch);
        digested.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
        next = end;
    }
    Ok(digest)
}
