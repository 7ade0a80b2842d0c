//! What an earlier, interrupted run left of the same work.

use std::path::PathBuf;

use plmkit_contract::{EmbeddingLayout, Provenance, Reason, Reject, Stop, path_text};
use plmkit_store::{StoreError, UnfinishedEmbeddings};

use super::encoders::encoder_threads;
use super::part::Part;
use super::record::{
    Block, Rejected, difference, malformed, provenance_of_blocks, provenance_of_part, take_blocks,
};
use super::run_folder::RunFolder;
use crate::inputs::RunInputs;
use crate::{EngineError, RunConfig};

/// What a run need not compute.
pub(crate) struct Saved {
    pub(crate) blocks: Option<SavedBlocks>,
    /// Rising and apart, behind the blocks.
    pub(crate) parts: Vec<Part>,
    /// Of other work, that this run replaces.
    pub(crate) replaced: Vec<PathBuf>,
}

/// The first blocks of the output.
pub(crate) struct SavedBlocks {
    pub(crate) file: UnfinishedEmbeddings,
    pub(crate) blocks: Vec<Block>,
}

impl Saved {
    /// Takes over what is in the folder, verified but for the rows of parts. What is damaged is removed. Work of others is an error or, with
    /// `--force`, to be replaced.
    pub(crate) fn take_over(
        folder: &RunFolder,
        config: &RunConfig,
        inputs: &RunInputs,
        (provenance, layout): (&Provenance, &EmbeddingLayout),
        stop: &Stop,
    ) -> Result<Self, StoreError> {
        let mut replaced = Vec::new();
        let blocks = match folder.other_blocks(provenance, layout) {
            Some(difference) if !config.force => return Err(folder.other_work(&difference)),
            Some(_) => {
                replaced.push(folder.blocks());
                replaced.push(UnfinishedEmbeddings::record_of(&folder.blocks()));
                None
            }
            None => SavedBlocks::take_over(folder, config, inputs, (provenance, layout), stop)?,
        };
        let first = blocks.as_ref().map_or(0, SavedBlocks::end);
        let (parts, others) = folder.parts(provenance, (inputs, first), config.force)?;
        replaced.extend(others);
        Ok(Self {
            blocks,
            parts,
            replaced,
        })
    }
}

impl SavedBlocks {
    /// The position of the batch behind them.
    pub(crate) fn end(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.batches.end)
    }

    /// The rows that are missing in them.
    pub(crate) fn rejects(&self, inputs: &RunInputs) -> Result<Vec<Reject>, EngineError> {
        let rejected = self.blocks.iter().flat_map(|block| &block.rejected);
        let reasons: std::collections::BTreeMap<(u64, u32), Reason> =
            rejected.map(|row| (row.key(), row.reason)).collect();
        let mut rejects = Vec::new();
        if reasons.is_empty() {
            return Ok(rejects);
        }
        for batch in inputs.batches_where(|index| index < self.end()) {
            let batch = batch?;
            let lines = batch.output_rows().filter_map(|row| {
                let reason = reasons.get(&batch.key(row))?;
                Some(batch.reject(row, *reason))
            });
            rejects.extend(lines);
        }
        Ok(rejects)
    }

    /// The blocks before the first one that has to be computed again; those behind it become parts.
    fn take_over(
        folder: &RunFolder,
        config: &RunConfig,
        inputs: &RunInputs,
        (provenance, layout): (&Provenance, &EmbeddingLayout),
        stop: &Stop,
    ) -> Result<Option<Self>, StoreError> {
        let (mut file, blocks) = match folder.open_blocks(config, layout) {
            Ok(Some((file, found))) => match recorded(folder, &file, found, provenance) {
                Ok(blocks) => (file, blocks),
                Err(error) => return again(folder, &error),
            },
            // Nothing of it was on record.
            Ok(None) => return folder.remove_blocks().map(|()| None),
            Err(error) => return again(folder, &error),
        };
        let intact = file.verify(encoder_threads(), stop)?;
        let planned = inputs.blocks(layout);
        let mut keep = 0;
        let mut row_groups = 0;
        let mut kept_row_groups = 0;
        for (number, block) in blocks.iter().enumerate() {
            let own = row_groups..row_groups + block.row_groups;
            row_groups = own.end;
            let (first, last) = (block.batches.start, block.batches.end);
            let why = if !intact[own.clone()].iter().all(|&intact| intact) {
                "damaged"
            } else if block.rejected.iter().any(Rejected::deserves_another_try) {
                "has sequences for which memory ran out or workers were lost"
            } else if planned.get(number) != Some(&block.batches) {
                "of other batches"
            } else if keep == number {
                (keep, kept_row_groups) = (number + 1, row_groups);
                continue;
            } else {
                let rejected = block.rejected.iter();
                let part = provenance_of_part(provenance, &block.batches, rejected);
                file.copy(own, &folder.part(first), &part)?;
                continue;
            };
            let path = folder.blocks();
            tracing::warn!(
                "{}: batches {first} to {}: {why}; computed again",
                path_text(&path),
                last - 1
            );
        }
        if keep == 0 {
            folder.remove_blocks()?;
            return Ok(None);
        }
        let blocks = blocks[..keep].to_vec();
        file.truncate(kept_row_groups, &provenance_of_blocks(provenance, &blocks))?;
        Ok(Some(Self { file, blocks }))
    }
}

/// The blocks of which a record tells.
fn recorded(
    folder: &RunFolder,
    file: &UnfinishedEmbeddings,
    mut found: Provenance,
    provenance: &Provenance,
) -> Result<Vec<Block>, StoreError> {
    let path = folder.blocks();
    let blocks = take_blocks(&mut found);
    let blocks = blocks.ok_or_else(|| malformed(&path, "not the blocks of a run"))?;
    difference(&path, &found, provenance)?;
    let row_groups: usize = blocks.iter().map(|block| block.row_groups).sum();
    if row_groups == file.len() {
        Ok(blocks)
    } else {
        Err(malformed(&path, "not the row groups of its blocks"))
    }
}

fn again(folder: &RunFolder, error: &StoreError) -> Result<Option<SavedBlocks>, StoreError> {
    tracing::warn!("{error}; it is computed again");
    folder.remove_blocks()?;
    Ok(None)
}
