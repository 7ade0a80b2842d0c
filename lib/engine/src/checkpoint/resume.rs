//! Loading the checkpoints of an earlier, interrupted run of the same work.

use std::path::PathBuf;

use plmkit_contract::{Provenance, Stop, path_text};
use plmkit_store::{StoreError, UnfinishedEmbeddings};

use super::encoders::encoder_threads;
use super::part::Part;
use super::record::{Block, RETRYABLE, check_kernels, malformed, with_blocks};
use super::run_folder::{FoundBlocks, RunFolder};
use crate::run::Work;

/// The checkpoints of an earlier run.
pub(crate) struct SavedWork {
    /// The first blocks of the output, with the file that holds them.
    pub(crate) blocks: Option<(UnfinishedEmbeddings, Vec<Block>)>,
    /// The batch after these blocks.
    pub(crate) first: u64,
    /// Parts after these blocks, in ascending order and without overlaps.
    pub(crate) parts: Vec<Part>,
    /// Files of other work, which this run replaces.
    pub(crate) to_replace: Vec<PathBuf>,
}

impl SavedWork {
    /// Loads the checkpoints in the folder. Everything but the rows of parts is verified, and damaged checkpoints are removed.
    /// Checkpoints of other work are an error or, with `--force`, are listed to be replaced.
    pub(crate) fn load(
        folder: &RunFolder,
        work: &Work<'_>,
        stop: &Stop,
    ) -> Result<Self, StoreError> {
        let (config, provenance) = (work.config, work.provenance);
        let mut to_replace = Vec::new();
        let mut found = folder.open_blocks(&folder.named(config), work.layout);
        if let Ok(Some((_, _, other))) = &found
            && let Some(difference) = other.difference(provenance)
        {
            if !config.force {
                return Err(folder.other_work(&difference));
            }
            let path = folder.blocks();
            to_replace.extend([UnfinishedEmbeddings::record_of(&path), path]);
            found = Ok(None);
        }
        let checked = found.and_then(|found| {
            let found = found.map(|found| checked_blocks(folder, found, provenance));
            found.transpose()
        });
        let blocks = match checked {
            Ok(Some(found)) => keep_blocks(folder, work, found, stop)?,
            nothing => {
                if let Err(error) = nothing {
                    tracing::warn!("{error}; it is computed again");
                }
                if to_replace.is_empty() {
                    folder.remove_blocks()?;
                }
                None
            }
        };
        let last = blocks.as_ref().and_then(|(_, blocks)| blocks.last());
        let first = last.map_or(0, |block| block.batches.end);
        let (parts, others) = folder.parts(work, first)?;
        to_replace.extend(others);
        Ok(Self {
            blocks,
            first,
            parts,
            to_replace,
        })
    }
}

/// Checks the record of the blocks of the same work.
fn checked_blocks(
    folder: &RunFolder,
    (file, blocks, found): FoundBlocks,
    provenance: &Provenance,
) -> Result<(UnfinishedEmbeddings, Vec<Block>), StoreError> {
    let path = folder.blocks();
    let blocks = blocks.ok_or_else(|| malformed(&path, "not the blocks of a run"))?;
    check_kernels(&path, &found, provenance)?;
    let row_groups: usize = blocks.iter().map(|block| block.row_groups).sum();
    if row_groups == file.len() {
        Ok((file, blocks))
    } else {
        Err(malformed(&path, "not the row groups of its blocks"))
    }
}

/// Verifies the blocks, and keeps those before the first one that has to be computed again. Valid blocks after it become parts.
fn keep_blocks(
    folder: &RunFolder,
    work: &Work<'_>,
    (mut file, mut blocks): (UnfinishedEmbeddings, Vec<Block>),
    stop: &Stop,
) -> Result<Option<(UnfinishedEmbeddings, Vec<Block>)>, StoreError> {
    let intact = file.verify(encoder_threads(), stop)?;
    let (mut kept, mut kept_row_groups, mut row_groups) = (0, 0, 0);
    for (number, block) in blocks.iter().enumerate() {
        let own = row_groups..row_groups + block.row_groups;
        row_groups = own.end;
        let (first, end) = (block.batches.start, block.batches.end);
        let why = if !intact[own.clone()].iter().all(|&intact| intact) {
            "damaged"
        } else if block.is_retryable() {
            RETRYABLE
        } else if work.blocks.get(number) != Some(&block.batches) {
            "of other batches"
        } else if kept == number {
            (kept, kept_row_groups) = (number + 1, row_groups);
            continue;
        } else {
            let part = with_blocks(work.provenance, std::slice::from_ref(block));
            file.copy(own, &folder.part(first), &part)?;
            continue;
        };
        let path = path_text(&folder.blocks());
        let last = end - 1;
        tracing::warn!("{path}: batches {first} to {last}: {why}; computed again");
    }
    if kept == 0 {
        folder.remove_blocks()?;
        return Ok(None);
    }
    blocks.truncate(kept);
    file.truncate(kept_row_groups, &with_blocks(work.provenance, &blocks))?;
    Ok(Some((file, blocks)))
}
