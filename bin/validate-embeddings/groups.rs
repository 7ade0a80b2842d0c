//! Reads all files on all cores: each shard beside the embeddings that were made of it.
//!
//! A shard says which batches it becomes, and an embeddings file which batches it was made from. So each file needs only
//! the rows of its own shard in memory. What does not fit together in this way is read in the end as one group.

use std::collections::HashMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use plmkit_check::{Criteria, ExpectedRows, Findings, Validator};
use plmkit_cli::{Exit, Fault, Stop};
use plmkit_contract::{Labels, RowDigest};
use plmkit_store::{EmbeddingsReader, FileKind, Shard, StoreError, read_shard};

use crate::args::Args;
use crate::file::FileReading;
use crate::proteins::add_proteins;
use crate::report::InputFile;
use crate::spot_check::{Sampling, SpotSample};

/// An embeddings file, as its footer describes it.
pub(crate) struct EmbeddingsFile {
    /// Its position on the command line.
    pub(crate) position: usize,
    pub(crate) path: PathBuf,
    /// The batches that it was made from.
    inputs: Vec<String>,
}

/// What was read of a group of files.
#[derive(Default)]
pub(crate) struct Group {
    findings: Findings,
    /// Position on the command line, and the file.
    pub(crate) shards: Vec<(usize, InputFile)>,
    pub(crate) embeddings: Vec<(usize, InputFile)>,
    /// Name and first ordinal of each embeddings file with rows.
    pub(crate) begins: Vec<(String, u64)>,
    /// The rows that are computed again.
    pub(crate) sample: SpotSample,
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
    /// Which rows are computed again, if any are.
    pub(crate) sampling: Option<Sampling>,
}

impl EmbeddingsFile {
    pub(crate) fn new(position: usize, reader: &EmbeddingsReader) -> Self {
        Self {
            position,
            path: reader.path().to_owned(),
            inputs: reader.provenance().inputs.clone(),
        }
    }
}

impl Group {
    /// Puts what was read together: findings in the order of the first file of each group, files as given.
    fn merge(mut groups: Vec<Self>) -> (Findings, Self) {
        let first = |files: &[(usize, InputFile)]| files.iter().map(|file| file.0).min();
        groups.sort_by_key(|group| {
            let embeddings = first(&group.embeddings).unwrap_or(usize::MAX);
            (embeddings, first(&group.shards))
        });
        let mut findings = Findings::default();
        let mut all = Self::default();
        for group in groups {
            findings.merge(group.findings);
            all.shards.extend(group.shards);
            all.embeddings.extend(group.embeddings);
            all.begins.extend(group.begins);
            all.sample.merge(group.sample);
        }
        all.shards.sort_by_key(|file| file.0);
        all.embeddings.sort_by_key(|file| file.0);
        (findings, all)
    }
}

impl Reading<'_> {
    /// Reads all shards and embeddings.
    pub(crate) fn read(&self, embeddings: Vec<EmbeddingsFile>) -> Result<(Findings, Group), Fault> {
        let shards: Vec<(usize, &PathBuf)> = self.args.shards.iter().enumerate().collect();
        if shards.is_empty() {
            let groups = self.on_threads(&embeddings, |file| self.group(&[], &[], &[file]));
            return Ok(Group::merge(groups?));
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
        let read = self.on_threads(&shards, |&(position, path)| {
            let shard = self.shard(path)?;
            let batches = self.batches_digest(&shard)?;
            let embeddings = take(&batches.to_string());
            if embeddings.is_empty() {
                return Ok(None);
            }
            let embeddings: Vec<&EmbeddingsFile> = embeddings.iter().collect();
            let group = self.group(&[(position, path)], &[(shard, batches)], &embeddings)?;
            Ok(Some(group))
        })?;
        let alone = shards
            .iter()
            .zip(&read)
            .filter(|(_, group)| group.is_none());
        let alone: Vec<(usize, &PathBuf)> = alone.map(|(shard, _)| *shard).collect();
        let mut groups: Vec<Group> = read.into_iter().flatten().collect();
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        rest.extend(waiting.into_values().flatten());
        rest.sort_by_key(|file| file.position);
        if !(alone.is_empty() && rest.is_empty()) {
            let shards = alone.iter().map(|(_, path)| {
                let shard = self.shard(path)?;
                let batches = self.batches_digest(&shard)?;
                Ok((shard, batches))
            });
            let shards = shards.collect::<Result<Vec<_>, Fault>>()?;
            let rest: Vec<&EmbeddingsFile> = rest.iter().collect();
            groups.push(self.group(&alone, &shards, &rest)?);
        }
        Ok(Group::merge(groups))
    }

    /// Does something with each item, on as many threads as there are to be. Returns the results in order, or the error of the first
    /// item that has one.
    fn on_threads<I: Sync, T: Send>(
        &self,
        items: &[I],
        work: impl Fn(&I) -> Result<T, Fault> + Sync,
    ) -> Result<Vec<T>, Fault> {
        let next = AtomicUsize::new(0);
        let failed = AtomicUsize::new(usize::MAX);
        let results = Mutex::new(Vec::new());
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
                results.push((place, result));
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
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, result)| result).collect()
    }

    fn shard(&self, path: &Path) -> Result<Shard, Fault> {
        self.check_stop()?;
        Ok(read_shard(path).map_err(|error| error.of_input(FileKind::Shard))?)
    }

    /// The row digest of the batches file that pack-batches makes of a shard, whatever its options but the labels: the digest does not
    /// depend on how rows are packed.
    fn batches_digest(&self, shard: &Shard) -> Result<RowDigest, Fault> {
        let rows = shard.rows();
        let mut digest = RowDigest::default();
        let mut next = 0;
        for batch in &shard.batches {
            let end = next + batch.num_rows();
            let batch = shard.pack((next..end).map(|row| rows.get(row)), self.labels)?;
            let digested = digest.update(&batch);
            digested.map_err(|error| Fault::new(Exit::Internal, error.to_string()))?;
            next = end;
        }
        Ok(digest)
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
                    add_proteins(&mut expected, shard);
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
            group
                .shards
                .push((*position, InputFile::from_rows(&name, shard.digest)));
        }
        if let Some(sampling) = self.sampling {
            let positions = embeddings.iter().map(|file| file.position);
            group.sample = SpotSample::choose(sampling, shards, positions, self.stitched);
        }
        for file in embeddings {
            let name = self.args.name(&file.path);
            let mut reader = FileReading::new(&mut validator, &mut group.sample, file, &name);
            let digest = reader.read(self)?;
            group
                .begins
                .extend(reader.first.map(|first| (name.clone(), first)));
            let input = InputFile::from_rows(&name, digest);
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
