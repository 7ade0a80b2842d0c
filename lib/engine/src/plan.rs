//! What a run has before it: the opened batches files and their sums.

use std::path::{Path, PathBuf};

use plmkit_store::{BatchesFile, PackedBatch};

use crate::EngineError;

/// The verified inputs of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    files: Vec<(PathBuf, BatchesFile)>,
    /// Packs over all files.
    pub(crate) batches: u64,
    /// Sequences over all packs.
    pub(crate) sequences: u64,
    /// Tokens over all packs.
    pub(crate) tokens: u64,
}

/// One pack and where it comes from.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// Position among all packs of the run.
    pub(crate) index: u64,
    /// The batches file.
    pub(crate) path: &'a Path,
    /// Position in that file.
    pub(crate) batch_in_file: usize,
    /// Whether it is the last of its file, which holds what was left over.
    pub(crate) tail: bool,
    /// Tokens that the pack might have held, if the file says so.
    pub(crate) token_budget: Option<u64>,
    /// The pack.
    pub(crate) pack: PackedBatch,
}

impl Plan {
    /// Opens and verifies every file.
    pub(crate) fn open(paths: &[PathBuf]) -> Result<Self, EngineError> {
        let mut plan = Self {
            files: Vec::with_capacity(paths.len()),
            batches: 0,
            sequences: 0,
            tokens: 0,
        };
        for path in paths {
            let file = BatchesFile::open(path)?;
            for batch in 0..file.len() {
                let pack = file.batch(batch)?;
                plan.batches += 1;
                plan.sequences += pack.sequences() as u64;
                plan.tokens += pack.tokens().len() as u64;
            }
            plan.files.push((path.clone(), file));
        }
        Ok(plan)
    }

    /// The row digests of the files, in order.
    pub(crate) fn digests(&self) -> Vec<String> {
        self.files
            .iter()
            .map(|(_, file)| file.digest().to_string())
            .collect()
    }

    /// The largest token budget that a file was packed for.
    pub(crate) fn token_budget(&self) -> Option<u64> {
        self.files
            .iter()
            .filter_map(|(_, file)| token_budget(file))
            .max()
    }

    /// Every pack, in order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = Result<Job<'_>, EngineError>> {
        let packs = self
            .files
            .iter()
            .flat_map(|(path, file)| (0..file.len()).map(move |batch| (path, file, batch)));
        (0..).zip(packs).map(|(index, (path, file, batch))| {
            Ok(Job {
                index,
                path,
                batch_in_file: batch,
                tail: batch + 1 == file.len(),
                token_budget: token_budget(file),
                pack: file.batch(batch)?,
            })
        })
    }
}

fn token_budget(file: &BatchesFile) -> Option<u64> {
    file.provenance().options.get("max_batch_tokens")?.as_u64()
}
