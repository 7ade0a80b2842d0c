//! The output in blocks. A block is consecutive batches whose rows fill row groups of their own.
//!
//! The ends of blocks follow from the batches files and the columns, so the bytes of a row group do not depend on where a run was
//! interrupted. The rows of a block precede all rows of the next one and are sorted before they are cut into row groups: the output
//! has the order of the input.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use plmkit_contract::{Provenance, Reject, RowDigest, ordinals};
use plmkit_kit::{Stop, path_text};
use plmkit_store::{AtomicFile, EmbeddingsWriter, StoreError, UnfinishedEmbeddings, remove_file};

use super::block::{OutputBlock, RETRYABLE, open_part};
use super::run_folder::{RunFolder, damage, remove_checkpoint};
use crate::batch::ComputedBatch;
use crate::work::Work;

/// Collects batches into blocks, encodes complete blocks, and saves finished work.
pub(crate) struct OutputBlocks<'a> {
    pub(crate) folder: &'a RunFolder,
    work: &'a Work<'a>,
    last_checkpoint: Instant,
    /// The batches so far, those of earlier runs included.
    pub(crate) batches: u64,
    /// The last of them: those of the incomplete block.
    open: Vec<ComputedBatch>,
    /// Before these, the blocks on their way into the file, each with the number of its row groups.
    encoding: VecDeque<(Vec<ComputedBatch>, usize)>,
    /// The output under construction.
    file: Option<UnfinishedEmbeddings>,
    /// The blocks in the file.
    finished: Vec<OutputBlock>,
    /// The number of finished blocks on record.
    recorded: usize,
    /// The parts whose rows are not in blocks on record, in ascending order and without overlaps.
    pub(crate) parts: Vec<OutputBlock>,
    /// Checkpoints of other work, which this run replaces.
    pub(crate) to_replace: Vec<PathBuf>,
}

impl<'a> OutputBlocks<'a> {
    /// Continues the output of `work` after the checkpoints in the folder. Everything but the rows of parts is verified, and damaged
    /// checkpoints are removed. Checkpoints of other work are an error or, with `--force`, are listed to be replaced.
    pub(crate) fn load(
        folder: &'a RunFolder,
        work: &'a Work<'a>,
        stop: &Stop,
    ) -> Result<Self, StoreError> {
        let mut blocks = Self {
            folder,
            work,
            last_checkpoint: Instant::now(),
            batches: 0,
            open: Vec::new(),
            encoding: VecDeque::new(),
            file: None,
            finished: Vec::new(),
            recorded: 0,
            parts: Vec::new(),
            to_replace: Vec::new(),
        };
        let path = folder.blocks();
        let found = folder.open_blocks(work);
        match blocks.usable(&path, found)? {
            Some(Some((file, found))) => blocks.continue_file(file, found, stop)?,
            Some(None) => remove_checkpoint(&path)?,
            None => {}
        }
        blocks.batches = blocks.saved();
        blocks.recorded = blocks.finished.len();
        blocks.load_parts()?;
        Ok(blocks)
    }

    /// Returns a checkpoint if this run can use it. Damaged ones are removed. One of other work or that cannot be read is an error.
    fn usable<T>(
        &mut self,
        path: &Path,
        found: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match found {
            Ok(found) => return Ok(Some(found)),
            Err(StoreError::Exists { .. }) if self.work.job.force => {
                self.to_replace.push(path.to_owned());
            }
            Err(StoreError::Exists { difference, .. }) => {
                return Err(self.folder.other_work(&difference));
            }
            Err(error) => {
                let error = damage(error)?;
                tracing::warn!("{error}; it is computed again");
                remove_checkpoint(path)?;
            }
        }
        Ok(None)
    }

    /// Verifies the blocks that were found in the file, and keeps those before the first one that has to be computed again. Valid
    /// blocks after it become parts, as all do if another run may still write the file.
    fn continue_file(
        &mut self,
        mut file: UnfinishedEmbeddings,
        found: Vec<OutputBlock>,
        stop: &Stop,
    ) -> Result<(), StoreError> {
        let path = self.folder.blocks();
        let intact = file.verify(stop)?;
        let (mut kept_row_groups, mut row_groups) = (0, 0);
        for (number, block) in found.into_iter().enumerate() {
            let own = row_groups..row_groups + block.row_groups;
            row_groups = own.end;
            let why = if !intact[own.clone()].iter().all(|&intact| intact) {
                "damaged"
            } else if block.is_retryable() {
                RETRYABLE
            } else if self.work.blocks.get(number) != Some(&block.batches) {
                "of other batches"
            } else if self.finished.len() == number && !self.folder.is_shared() {
                kept_row_groups = row_groups;
                self.finished.push(block);
                continue;
            } else {
                let part = OutputBlock::recorded(slice::from_ref(&block), &self.work.provenance);
                file.copy(own, &self.folder.part(block.batches.start), &part)?;
                continue;
            };
            let (first, last) = (block.batches.start, block.batches.end - 1);
            let path = path_text(&path);
            tracing::warn!("{path}: batches {first} to {last}: {why}; computed again");
        }
        if self.finished.is_empty() {
            return remove_checkpoint(&path);
        }
        file.truncate(kept_row_groups, &self.record())?;
        self.file = Some(file);
        Ok(())
    }

    /// Lists the parts after the blocks in the file.
    fn load_parts(&mut self) -> Result<(), StoreError> {
        let (first, work) = (self.saved(), self.work);
        for path in self.folder.parts()? {
            let end = self.parts.last().map_or(first, |part| part.batches.end);
            let opened = open_part(&path, &work.provenance);
            if opened.as_ref().is_ok_and(|part| part.batches.end <= first) {
                // An earlier run was killed after it recorded a block and before it removed the parts of the block.
                remove_file(&path)?;
                continue;
            }
            let checked = opened.and_then(|part| {
                let batches = &part.batches;
                let is_misplaced = batches.start < end
                    || batches.end > work.inputs.total.batches
                    || !work.inputs.is_whole(batches)
                    || self.folder.part(batches.start) != path;
                if part.is_retryable() {
                    Err(StoreError::malformed(&path, RETRYABLE))
                } else if is_misplaced {
                    let what = "overlaps another part, or cuts a protein";
                    Err(StoreError::malformed(&path, what))
                } else {
                    Ok(part)
                }
            });
            let part = self.usable(&path, checked)?;
            self.parts.extend(part);
        }
        Ok(())
    }

    /// The number of batches in the blocks in the file.
    pub(crate) fn saved(&self) -> u64 {
        self.finished.last().map_or(0, |block| block.batches.end)
    }

    /// The provenance of the file with its blocks.
    fn record(&self) -> Provenance {
        OutputBlock::recorded(&self.finished, &self.work.provenance)
    }

    /// Adds the next batch.
    pub(crate) fn push(&mut self, batch: ComputedBatch) -> Result<(), StoreError> {
        if batch.saved {
            // A part holds consecutive batches, so one ends here.
            self.save_rows()?;
        }
        let at_boundary = batch.at_boundary;
        self.open.push(batch);
        self.batches += 1;
        if self.work.ends_block(self.batches) {
            self.encode()?;
        }
        let interval = self.work.config.checkpoint_interval;
        if at_boundary && self.last_checkpoint.elapsed() >= interval {
            self.save()?;
        }
        Ok(())
    }

    /// Starts to encode the open block, which is complete. The rows of a block stay in memory until all of its row groups are in the
    /// file.
    fn encode(&mut self) -> Result<(), StoreError> {
        let rows = sorted(self.open.iter().flat_map(|batch| &batch.rows));
        let groups = self.file()?.cut(&rows);
        let batches = std::mem::take(&mut self.open);
        self.encoding.push_back((batches, groups.len()));
        for rows in groups {
            self.file()?.submit(rows)?;
            self.finish_blocks();
        }
        self.finish_blocks();
        Ok(())
    }

    /// The output under construction, created if missing.
    fn file(&mut self) -> Result<&mut UnfinishedEmbeddings, StoreError> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            self.folder.check()?;
            let (path, named) = (self.folder.blocks(), self.folder.named(self.work.job));
            let threads = self.work.config.threads;
            UnfinishedEmbeddings::create(&path, &named, self.work.layout, threads)?
        };
        Ok(self.file.insert(file))
    }

    /// Waits until all complete blocks are in the file.
    fn wait_for_all(&mut self) -> Result<(), StoreError> {
        let written = self.file.as_mut().map(UnfinishedEmbeddings::wait_for_all);
        self.finish_blocks();
        written.unwrap_or(Ok(()))
    }

    /// Moves blocks whose row groups are all in the file to the finished ones.
    fn finish_blocks(&mut self) {
        let file = self.file.as_ref();
        let written = file.map_or(0, UnfinishedEmbeddings::row_groups);
        let mut left = written - self.row_groups();
        while let Some((batches, row_groups)) = self
            .encoding
            .pop_front_if(|(_, row_groups)| *row_groups <= left)
        {
            left -= row_groups;
            let block = OutputBlock::new(self.saved(), &batches, row_groups);
            self.finished.push(block);
        }
    }

    /// The number of row groups of the finished blocks.
    fn row_groups(&self) -> usize {
        self.finished.iter().map(|block| block.row_groups).sum()
    }

    /// Makes a checkpoint: complete blocks in the output under construction, the rows of the incomplete block in parts.
    fn save(&mut self) -> Result<(), StoreError> {
        self.wait_for_all()?;
        self.folder.check()?;
        if let Some(file) = &self.file
            && self.finished.len() > self.recorded
        {
            file.write_footer(&self.record())?;
            self.recorded = self.finished.len();
            self.remove_parts()?;
        }
        self.save_rows()?;
        self.last_checkpoint = Instant::now();
        Ok(())
    }

    /// Saves the rows of the open batches in parts, up to the last protein whose windows are all computed. A part ends with a block,
    /// because it is removed with the first block that has rows of it.
    fn save_rows(&mut self) -> Result<(), StoreError> {
        let mut first = self.batches - self.open.len() as u64;
        let mut number = first;
        let end = self.open.iter().rposition(|batch| batch.at_boundary);
        let complete = &mut self.open[..end.map_or(0, |last| last + 1)];
        for batches in complete.chunk_by_mut(|one, next| {
            number += 1;
            one.saved == next.saved && !self.work.ends_block(number)
        }) {
            let part = OutputBlock::new(first, batches, 0);
            first = part.batches.end;
            if batches[0].saved {
                continue;
            }
            let path = self.folder.part(part.batches.start);
            let mut file = EmbeddingsWriter::create(&path, self.work.layout)?;
            for rows in batches.iter().flat_map(|batch| &batch.rows) {
                file.write(rows)?;
            }
            file.finish(&OutputBlock::recorded(
                slice::from_ref(&part),
                &self.work.provenance,
            ))?;
            for batch in batches {
                batch.saved = true;
            }
            // A damaged one had this place.
            let is_other = |other: &OutputBlock| other.batches.start != part.batches.start;
            self.parts.retain(is_other);
            self.parts.push(part);
        }
        Ok(())
    }

    /// Removes the parts whose rows are in blocks on record.
    fn remove_parts(&mut self) -> Result<(), StoreError> {
        let end = self.saved();
        let recorded = |part: &mut OutputBlock| part.batches.start < end;
        for part in self.parts.extract_if(.., recorded) {
            remove_file(&self.folder.part(part.batches.start))?;
        }
        Ok(())
    }

    /// The rejected rows of all batches so far.
    pub(crate) fn rejected(&self) -> Vec<Reject> {
        let encoding = self.encoding.iter().flat_map(|(batches, _)| batches);
        let unfinished = encoding.chain(&self.open);
        let unfinished = unfinished.flat_map(|batch| &batch.rejected);
        let finished = self.finished.iter().flat_map(|block| &block.rejected);
        finished.chain(unfinished).cloned().collect()
    }

    /// The number of batches that the next run need not compute: all but those of an unfinished protein, and those of parts that
    /// were not reached and not found damaged.
    pub(crate) fn for_next_run(&self) -> u64 {
        let unsaved = self.open.iter().filter(|batch| !batch.saved).count() as u64;
        let parts = self.parts.iter().map(|part| &part.batches);
        let later = parts.filter(|part| self.folder.part(part.start).exists());
        let later = later.map(|part| part.end.saturating_sub(part.start.max(self.batches)));
        self.batches - unsaved + later.sum::<u64>()
    }

    /// Ends a complete output without publishing it, or saves an incomplete one for the next run.
    pub(crate) fn end(&mut self) -> Result<(), StoreError> {
        if self.batches < self.work.inputs.total.batches {
            self.keep()
        } else {
            self.wait_for_all()
        }
    }

    /// Saves finished work of an incomplete run. Blocks that could not be written are saved in parts.
    pub(crate) fn keep(&mut self) -> Result<(), StoreError> {
        // The first error is the one to report.
        let _ = self.wait_for_all();
        self.folder.check()?;
        let unwritten = self.encoding.drain(..).flat_map(|(batches, _)| batches);
        self.open = unwritten.chain(self.open.drain(..)).collect();
        let (row_groups, record) = (self.row_groups(), self.record());
        match &mut self.file {
            Some(_) if self.finished.is_empty() => remove_checkpoint(&self.folder.blocks())?,
            Some(file) => {
                file.truncate(row_groups, &record)?;
                self.remove_parts()?;
            }
            None => {}
        }
        self.save_rows()
    }

    /// Completes the output and renames it to the path that `claim` stands for.
    pub(crate) fn publish(
        &mut self,
        provenance: &Provenance,
        claim: AtomicFile,
    ) -> Result<RowDigest, StoreError> {
        self.file()?.publish(provenance, claim)
    }
}

/// Sorts rows by ordinal and start. Returns slices of these batches, without copying values.
fn sorted<'r>(batches: impl Iterator<Item = &'r RecordBatch>) -> Vec<RecordBatch> {
    let rows = batches.flat_map(|batch| {
        let starts = batch["start"].as_primitive::<UInt32Type>().values();
        let keys = ordinals(batch).iter().zip(starts);
        (0..)
            .zip(keys)
            .map(move |(row, (&ordinal, &start))| ((ordinal, start), batch, row))
    });
    let mut rows: Vec<((u64, u32), &RecordBatch, usize)> = rows.collect();
    rows.sort_unstable_by_key(|&(key, ..)| key);
    let runs = rows.chunk_by(|(_, batch, row), (_, next, after)| {
        std::ptr::eq(*batch, *next) && row + 1 == *after
    });
    runs.map(|run| run[0].1.slice(run[0].2, run.len()))
        .collect()
}
