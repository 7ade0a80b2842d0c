//! Reads all files on all cores: each shard beside the embeddings that were made of it.
//!
//! A shard says which batches it becomes, and an embeddings file which batches it was made from. So each file needs only
//! the rows of its own shard in memory. What does not fit together in this way is read in the end as one group.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use plmkit_check::{Criteria, EmbeddedFile, Findings, ShardFile, Validator};
use plmkit_cli::{Fault, Stop, default_threads};
use plmkit_contract::{Labels, RowDigest, ShardRow};
use plmkit_store::{EmbeddingsReader, Shard, StoreError, read_shard};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::args::Args;
use super::progress::{Progress, Report};
use super::proteins::each_protein;
use super::rows::each_row;
use super::spot_sample::SpotSample;

/// How files are read.
pub(crate) struct Reading<'a> {
    pub(crate) args: &'a Args,
    pub(crate) criteria: &'a Criteria,
    pub(crate) progress: Report<'a>,
    pub(crate) stop: &'a Stop,
    /// The columns beside the key, which the digest of batches depends on.
    pub(crate) labels: Labels,
    /// Whether a row of the embeddings is a whole protein, whatever its windows.
    pub(crate) stitched: bool,
    /// The rows that were computed again, if any were.
    pub(crate) sample: Option<&'a SpotSample<'a>>,
}

/// Opens embeddings files, which reports call so: what is missing or foreign shows before hours of reading.
pub(crate) fn open_all(
    paths: &[PathBuf],
    name: impl Fn(&Path) -> String,
) -> Result<Vec<EmbeddedFile>, Fault> {
    let open = |(position, path): (usize, &PathBuf)| {
        let opened = EmbeddingsReader::open(path)?;
        Ok(EmbeddedFile {
            name: name(path),
            position,
            provenance: opened.provenance().clone(),
            layout: opened.layout().clone(),
            rows: opened.digest(),
        })
    };
    paths.iter().enumerate().map(open).collect()
}

impl Reading<'_> {
    /// Reads all shards and embeddings.
    pub(crate) fn read(&self, embeddings: Vec<EmbeddedFile>) -> Result<Findings, Fault> {
        let rows = embeddings.iter().map(|file| file.rows.rows()).sum();
        (self.progress)(Progress::Reading { rows });
        let mut found = if self.args.shards.is_empty() {
            self.on_threads(&embeddings, |file| self.group(&[], &[file]))?
        } else {
            self.read_with_shards(embeddings)?
        };
        found.sort();
        Ok(found)
    }

    /// Reads each shard with the embeddings that were made of it, then what is left over as one group.
    fn read_with_shards(&self, embeddings: Vec<EmbeddedFile>) -> Result<Findings, Fault> {
        let mut by_batches: HashMap<String, Vec<EmbeddedFile>> = HashMap::new();
        let mut rest = Vec::new();
        for file in embeddings {
            match file.provenance.inputs.as_slice() {
                [batches] => by_batches.entry(batches.clone()).or_default().push(file),
                _ => rest.push(file),
            }
        }
        let waiting = Mutex::new(by_batches);
        let positions: Vec<usize> = (0..self.args.shards.len()).collect();
        let mut found = self.on_threads(&positions, |&position| {
            let shard = self.shard(position)?;
            let batches = shard.0.batches.to_string();
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let embeddings = waiting.remove(&batches);
            drop(waiting);
            embeddings.map_or(Ok(Findings::default()), |embeddings| {
                self.group(&[shard], &embeddings.iter().collect::<Vec<_>>())
            })
        })?;
        let read: HashSet<usize> = found.shards.iter().map(|shard| shard.position).collect();
        let mut alone = positions;
        alone.retain(|position| !read.contains(position));
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        rest.extend(waiting.into_values().flatten());
        rest.sort_by_key(|file| file.position);
        if !(alone.is_empty() && rest.is_empty()) {
            let shards = alone.into_iter().map(|position| self.shard(position));
            let shards = shards.collect::<Result<Vec<_>, Fault>>()?;
            found.merge(self.group(&shards, &rest.iter().collect::<Vec<_>>())?);
        }
        Ok(found)
    }

    /// Reads what belongs to each item on several threads. Returns all, in the order of the items, or the error of the first item that
    /// has one. Memory does not grow with the items.
    fn on_threads<I: Sync>(
        &self,
        items: &[I],
        work: impl Fn(&I) -> Result<Findings, Fault> + Sync,
    ) -> Result<Findings, Fault> {
        let threads = self.args.threads.unwrap_or_else(default_threads).get();
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let mut all = Findings::default();
        let at_once = pool.as_ref().map_or(1, ThreadPool::current_num_threads) * 4;
        for some in items.chunks(at_once) {
            let read = || some.par_iter().with_max_len(1).map(&work).collect();
            // Without a thread, this one does the work.
            let found: Vec<_> = match &pool {
                Ok(pool) => pool.install(read),
                Err(_) => some.iter().map(&work).collect(),
            };
            for found in found {
                all.merge(found?);
            }
        }
        Ok(all)
    }

    /// Reads the shard at a position.
    fn shard(&self, position: usize) -> Result<(ShardFile, Shard), Fault> {
        StoreError::check(self.stop)?;
        let path = &self.args.shards[position];
        let shard = read_shard(path)?;
        let file = ShardFile {
            name: self.args.name(path),
            position,
            provenance: shard.provenance.clone(),
            rows: shard.digest,
            batches: batches_digest(&shard, self.labels)?,
        };
        Ok((file, shard))
    }

    /// Reads embeddings against the rows of their shards.
    fn group(
        &self,
        shards: &[(ShardFile, Shard)],
        embeddings: &[&EmbeddedFile],
    ) -> Result<Findings, Fault> {
        let aliases = &self.criteria.aliases;
        let mut validator = Validator::new(self.criteria, !self.args.shards.is_empty());
        for (file, shard) in shards {
            validator.add_shard(file.clone());
            if self.stitched {
                each_protein(shard, |protein| validator.expect(protein));
            } else {
                shard
                    .rows()
                    .iter()
                    .for_each(|row| validator.expect(&row.key));
            }
            if !aliases.is_empty() {
                each_protein(shard, |protein| validator.add_protein(protein));
            }
            if let Some(all) = self.sample {
                validator.add_sample(all.chosen(file.position, shard));
            }
        }
        for file in embeddings {
            self.read_file(file, &mut validator)?;
        }
        Ok(validator.finish())
    }

    /// Shows all rows of a file to a validator.
    fn read_file(&self, file: &EmbeddedFile, validator: &mut Validator<'_>) -> Result<(), Fault> {
        let path = &self.args.embeddings[file.position];
        let mut reader = EmbeddingsReader::open(path)?;
        if (reader.digest(), reader.layout()) != (file.rows, &file.layout) {
            return Err(StoreError::malformed(path, "it was replaced in the meantime").into());
        }
        validator.begin_file(file.clone());
        let check = |rows| {
            (self.progress)(Progress::Read { rows });
            Ok(StoreError::check(self.stop)?)
        };
        each_row(&mut reader, check, |row, vectors| {
            validator.add_row(row, vectors);
        })
    }
}

/// The row digest of the batches file that pack-batches makes of a shard, whatever its options but the labels: the digest does not
/// depend on how rows are packed.
pub(crate) fn batches_digest(shard: &Shard, labels: Labels) -> Result<RowDigest, Fault> {
    let mut digest = RowDigest::default();
    let rows: Vec<ShardRow> = shard.rows().iter().collect();
    for rows in rows.chunks(1024) {
        let batch = shard.pack(rows.iter().copied(), labels)?;
        let digested = digest.update(&batch);
        digested.map_err(Fault::internal)?;
    }
    Ok(digest)
}
