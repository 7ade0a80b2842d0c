//! Reads all files on all cores: each shard beside the embeddings that were made of it.
//!
//! A shard says which batches it becomes, and an embeddings file which batches it was made from. So each file needs only
//! the rows of its own shard in memory. What does not fit together in this way is read in the end as one group.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use plmkit_check::{Criteria, EmbeddedFile, ExpectedRows, Findings, ShardFile, Validator};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{EmbeddingLayout, Labels, Provenance, RowDigest};
use plmkit_store::{EmbeddingsReader, FileKind, Shard, StoreError};

use crate::args::Args;
use crate::file::read_file;
use crate::proteins::each_protein;
use crate::recompute::{Sample, open};

/// An embeddings file, as its footer describes it.
pub(crate) struct EmbeddingsFile {
    /// Its position on the command line.
    position: usize,
    pub(crate) path: PathBuf,
    /// The digest of its rows.
    pub(crate) rows: RowDigest,
    pub(crate) layout: EmbeddingLayout,
    pub(crate) provenance: Provenance,
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
    /// The rows that were computed again, if any were.
    pub(crate) sample: Option<Sample>,
}

impl EmbeddingsFile {
    /// Opens files: what is missing or foreign shows before hours of reading.
    pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Self>, Fault> {
        let open = |(position, path): (usize, &PathBuf)| {
            let opened = EmbeddingsReader::open(path);
            let opened = opened.map_err(|error| error.of_input(FileKind::Embeddings))?;
            Ok(Self {
                position,
                path: path.clone(),
                rows: opened.digest(),
                layout: opened.layout().clone(),
                provenance: opened.provenance().clone(),
            })
        };
        paths.iter().enumerate().map(open).collect()
    }

    /// What is found in it is found under this name.
    pub(crate) fn named(&self, name: &str) -> EmbeddedFile {
        EmbeddedFile {
            name: name.to_owned(),
            position: self.position,
            provenance: self.provenance.clone(),
            layout: self.layout.clone(),
            rows: self.rows,
            begins: None,
        }
    }
}

/// Results of items that may end in any order, put together in the order of the items as they come: memory does not grow with their
/// number.
#[derive(Default)]
struct InOrder {
    all: Findings,
    /// The item whose result is added next.
    next: usize,
    /// Results of later items.
    waiting: BTreeMap<usize, Findings>,
    /// The first item that failed.
    failed: Option<(usize, Fault)>,
}

impl InOrder {
    fn add(&mut self, place: usize, result: Result<Findings, Fault>) {
        match result {
            Ok(found) => {
                self.waiting.insert(place, found);
                while let Some(found) = self.waiting.remove(&self.next) {
                    self.all.merge(found);
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
    pub(crate) fn read(&self, embeddings: Vec<EmbeddingsFile>) -> Result<Findings, Fault> {
        let mut found = if self.args.shards.is_empty() {
            self.on_threads(&embeddings, |file| self.group(&[], &[file]))?
        } else {
            self.read_with_shards(embeddings)?
        };
        found.sort();
        Ok(found)
    }

    /// Reads each shard with the embeddings that were made of it, then what is left over as one group.
    fn read_with_shards(&self, embeddings: Vec<EmbeddingsFile>) -> Result<Findings, Fault> {
        let mut by_batches: HashMap<String, Vec<EmbeddingsFile>> = HashMap::new();
        let mut rest = Vec::new();
        for file in embeddings {
            match file.provenance.inputs.as_slice() {
                [batches] => by_batches.entry(batches.clone()).or_default().push(file),
                _ => rest.push(file),
            }
        }
        let waiting = Mutex::new(by_batches);
        let alone = Mutex::new(Vec::new());
        let shards: Vec<(usize, &PathBuf)> = self.args.shards.iter().enumerate().collect();
        let mut found = self.on_threads(&shards, |&(position, path)| {
            let shard = self.shard(position, path)?;
            let batches = shard.batches.to_string();
            let embeddings = locked(&waiting).remove(&batches);
            let Some(embeddings) = embeddings else {
                locked(&alone).push((position, path));
                return Ok(Findings::default());
            };
            self.group(&[shard], &embeddings.iter().collect::<Vec<_>>())
        })?;
        let mut alone = alone.into_inner().unwrap_or_else(PoisonError::into_inner);
        alone.sort_unstable();
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        rest.extend(waiting.into_values().flatten());
        rest.sort_by_key(|file| file.position);
        if !(alone.is_empty() && rest.is_empty()) {
            let shards = alone.into_iter();
            let shards = shards.map(|(position, path)| self.shard(position, path));
            let shards = shards.collect::<Result<Vec<_>, Fault>>()?;
            found.merge(self.group(&shards, &rest.iter().collect::<Vec<_>>())?);
        }
        Ok(found)
    }

    /// Reads what belongs to each item, on as many threads as there are to be. Returns all, in the order of the items, or the error of
    /// the first item that has one.
    fn on_threads<I: Sync>(
        &self,
        items: &[I],
        work: impl Fn(&I) -> Result<Findings, Fault> + Sync,
    ) -> Result<Findings, Fault> {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(usize::MAX);
        let results = Mutex::new(InOrder::default());
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
                locked(&results).add(place, result);
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

    fn shard<'p>(&self, position: usize, path: &'p Path) -> Result<OpenShard<'p>, Fault> {
        self.check_stop()?;
        let shard = open(path)?;
        Ok(OpenShard {
            position,
            path,
            batches: batches_digest(&shard, self.labels)?,
            shard,
        })
    }

    /// Reads embeddings against the rows of their shards.
    fn group(
        &self,
        shards: &[OpenShard<'_>],
        embeddings: &[&EmbeddingsFile],
    ) -> Result<Findings, Fault> {
        let expected = (!self.args.shards.is_empty()).then(|| {
            let mut expected = ExpectedRows::default();
            for OpenShard { shard, .. } in shards {
                if self.stitched {
                    each_protein(shard, |protein| expected.push(protein));
                } else {
                    shard.rows().iter().for_each(|row| expected.push(&row.key));
                }
            }
            expected
        });
        let mut validator = Validator::new(self.criteria, expected);
        let aliases = &self.criteria.aliases;
        let mut sample = HashSet::new();
        for opened in shards {
            let shard = &opened.shard;
            validator.add_shard(ShardFile {
                name: self.args.name(opened.path),
                position: opened.position,
                provenance: shard.provenance.clone(),
                rows: shard.digest,
                batches: opened.batches,
            });
            if !aliases.is_empty() {
                each_protein(shard, |protein| validator.add_protein(protein));
            }
            if let Some(all) = &self.sample {
                sample.extend(all.chosen(opened.path, shard, aliases));
            }
        }
        validator.set_sample(sample);
        for file in embeddings {
            read_file(self, file, &mut validator)?;
        }
        Ok(validator.finish())
    }

    pub(crate) fn check_stop(&self) -> Result<(), StoreError> {
        if self.stop.requested() {
            Err(StoreError::Stopped)
        } else {
            Ok(())
        }
    }
}

/// A shard that was read.
struct OpenShard<'a> {
    position: usize,
    path: &'a Path,
    shard: Shard,
    /// The digest of the batches that it becomes.
    batches: RowDigest,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
