//! The output in blocks. A block is consecutive batches whose rows fill row groups of their own.
//!
//! The ends of blocks follow from the batches files and the columns, so the bytes of a row group do not depend on where a run was
//! interrupted. The rows of a block precede all rows of the next one and are sorted before they are cut into row groups: the output
//! has the order of the input.

use std::collections::VecDeque;
use std::time::Instant;

use arrow_array::RecordBatch;
use plmkit_contract::{Provenance, Reject, RowDigest};
use plmkit_store::{
    AtomicFile, EmbeddingsWriter, PlacedRowGroup, StoreError, UnfinishedEmbeddings, remove_file,
};

use super::encoders::{BlocksFile, RowGroupThread, encoder_threads};
use super::part::keys;
use super::record::{Block, with_blocks};
use super::run_folder::RunFolder;
use crate::batch::{Batch, BatchResult};
use crate::run::Work;

/// Collects batches into blocks, encodes complete blocks, and saves finished work.
pub(crate) struct Blocks<'a> {
    folder: &'a RunFolder,
    work: &'a Work<'a>,
    last_checkpoint: Instant,
    /// The batches of the incomplete block.
    open: Vec<FinishedBatch>,
    encoding: VecDeque<EncodingBlock>,
    file: Option<BlocksFile>,
    /// The blocks in the file.
    finished: Vec<Block>,
    /// The number of finished blocks on record.
    recorded: usize,
    /// The first batches of the parts whose rows are not in blocks on record.
    parts: Vec<u64>,
}

/// The results of a batch.
struct FinishedBatch {
    index: u64,
    rows: RecordBatch,
    rejected: Vec<Reject>,
    at_boundary: bool,
    /// Whether the rows are in a part.
    saved: bool,
}

/// A block on its way into the file.
struct EncodingBlock {
    batches: Vec<FinishedBatch>,
    /// Row groups in progress, and the written ones before them.
    in_progress: VecDeque<RowGroupThread>,
    placed: Vec<PlacedRowGroup>,
    /// Whether all row groups were submitted.
    submitted: bool,
}

impl<'a> Blocks<'a> {
    /// Continues the output of `work`. `saved` is the file with its first blocks, and `parts` are the first batches of the parts.
    pub(crate) fn new(
        folder: &'a RunFolder,
        work: &'a Work<'a>,
        saved: Option<(UnfinishedEmbeddings, Vec<Block>)>,
        parts: Vec<u64>,
    ) -> Self {
        let (file, finished) = saved.unzip();
        let finished = finished.unwrap_or_default();
        Self {
            folder,
            work,
            last_checkpoint: Instant::now(),
            open: Vec::new(),
            encoding: VecDeque::new(),
            file: file.map(BlocksFile::new),
            recorded: finished.len(),
            finished,
            parts,
        }
    }

    /// Adds the result of the next batch.
    pub(crate) fn push(&mut self, batch: &Batch, result: BatchResult) -> Result<(), StoreError> {
        // Without a computation, the rows come from a part.
        let saved = result.stats.is_none();
        if saved {
            // A part holds consecutive batches, so one ends here.
            self.save_rows()?;
        }
        self.open.push(FinishedBatch {
            index: batch.index,
            rows: result.rows,
            rejected: result.rejected,
            at_boundary: batch.at_boundary,
            saved,
        });
        let end = batch.index + 1;
        let planned = &self.work.blocks;
        let ends_block = planned.binary_search_by_key(&end, |block| block.end);
        if ends_block.is_ok() {
            self.encode()?;
        }
        let interval = self.work.config.checkpoint_interval;
        if batch.at_boundary && self.last_checkpoint.elapsed() >= interval {
            self.save()?;
        }
        Ok(())
    }

    /// Starts to encode the open block, which is complete. Waits while too many row groups are in progress.
    fn encode(&mut self) -> Result<(), StoreError> {
        let batches = std::mem::take(&mut self.open);
        let rows = sorted(batches.iter().map(|batch| &batch.rows));
        let groups = self.file().map(|file| file.cut(&rows));
        self.encoding.push_back(EncodingBlock {
            batches,
            in_progress: VecDeque::new(),
            placed: Vec::new(),
            submitted: false,
        });
        for rows in groups? {
            // The rows of a block stay in memory until all of its row groups are in the file.
            while self.in_progress() >= encoder_threads() || self.first_is_written() {
                self.wait()?;
            }
            let thread = self.file()?.submit(rows)?;
            if let Some(block) = self.encoding.back_mut() {
                block.in_progress.push_back(thread);
            }
        }
        if let Some(block) = self.encoding.back_mut() {
            block.submitted = true;
        }
        self.finish_blocks();
        Ok(())
    }

    /// The output under construction, created if missing.
    fn file(&mut self) -> Result<&mut BlocksFile, StoreError> {
        let file = if let Some(file) = self.file.take() {
            file
        } else {
            let (path, named) = (self.folder.blocks(), self.folder.named(self.work.config));
            let file = UnfinishedEmbeddings::create(&path, &named, self.work.layout)?;
            BlocksFile::new(file)
        };
        Ok(self.file.insert(file))
    }

    /// The number of row groups in progress.
    fn in_progress(&self) -> usize {
        let blocks = self.encoding.iter();
        blocks.map(|block| block.in_progress.len()).sum()
    }

    /// Whether the first row group in progress has been written.
    fn first_is_written(&self) -> bool {
        let mut threads = self.encoding.iter().flat_map(|block| &block.in_progress);
        threads.next().is_some_and(RowGroupThread::is_finished)
    }

    /// Waits for the first row group in progress.
    fn wait(&mut self) -> Result<(), StoreError> {
        let mut blocks = self.encoding.iter_mut();
        if let Some(block) = blocks.find(|block| !block.in_progress.is_empty())
            && let Some(thread) = block.in_progress.pop_front()
        {
            let placed = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A block that lacks a row group never becomes complete, nor do those after it.
            block.submitted &= placed.is_ok();
            block.placed.push(placed?);
        }
        self.finish_blocks();
        Ok(())
    }

    /// Waits until all submitted row groups are written.
    pub(crate) fn wait_for_all(&mut self) -> Result<(), StoreError> {
        while self.in_progress() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Moves blocks whose row groups are all in the file to the finished ones.
    fn finish_blocks(&mut self) {
        while let Some(block) = self
            .encoding
            .pop_front_if(|block| block.submitted && block.in_progress.is_empty())
        {
            let [Some(first), Some(last)] = [block.batches.first(), block.batches.last()] else {
                continue;
            };
            let rejected = block.batches.iter().flat_map(|batch| &batch.rejected);
            self.finished.push(Block {
                batches: first.index..last.index + 1,
                row_groups: block.placed.len(),
                rejected: rejected.cloned().collect(),
            });
            if let Some(output) = &mut self.file {
                let placed = block.placed.into_iter();
                placed.for_each(|group| output.file.push(group));
            }
        }
    }

    /// Makes a checkpoint: complete blocks in the output under construction, the rows of the incomplete block in parts.
    fn save(&mut self) -> Result<(), StoreError> {
        self.wait_for_all()?;
        if let Some(output) = &self.file
            && self.finished.len() > self.recorded
        {
            let record = with_blocks(self.work.provenance, &self.finished);
            output.file.record(&record)?;
            self.recorded = self.finished.len();
            self.remove_parts()?;
        }
        self.save_rows()?;
        self.last_checkpoint = Instant::now();
        Ok(())
    }

    /// Saves the rows of the incomplete block in parts, up to the last protein whose windows are all computed.
    fn save_rows(&mut self) -> Result<(), StoreError> {
        let end = self.open.iter().rposition(|batch| batch.at_boundary);
        let complete = &mut self.open[..end.map_or(0, |last| last + 1)];
        for batches in complete.chunk_by_mut(|one, next| one.saved == next.saved) {
            if batches[0].saved {
                continue;
            }
            let first = batches[0].index;
            let mut part = EmbeddingsWriter::create(&self.folder.part(first), self.work.layout)?;
            for batch in &*batches {
                part.write(&batch.rows)?;
            }
            let rejected = batches.iter().flat_map(|batch| &batch.rejected);
            let block = Block {
                batches: first..first + batches.len() as u64,
                row_groups: 0,
                rejected: rejected.cloned().collect(),
            };
            part.finish(&with_blocks(self.work.provenance, &[block]))?;
            for batch in batches {
                batch.saved = true;
            }
            self.parts.push(first);
        }
        Ok(())
    }

    /// Removes the parts whose rows are in blocks on record.
    fn remove_parts(&mut self) -> Result<(), StoreError> {
        let end = self.finished.last().map_or(0, |block| block.batches.end);
        for first in self.parts.extract_if(.., |first| *first < end) {
            remove_file(&self.folder.part(first))?;
        }
        Ok(())
    }

    /// The rejected rows of all batches so far.
    pub(crate) fn rejected(&self) -> Vec<Reject> {
        let encoding = self.encoding.iter().flat_map(|block| &block.batches);
        let unfinished = encoding.chain(&self.open);
        let unfinished = unfinished.flat_map(|batch| &batch.rejected);
        let finished = self.finished.iter().flat_map(|block| &block.rejected);
        finished.chain(unfinished).cloned().collect()
    }

    /// The number of batches that are not saved because a protein is unfinished.
    pub(crate) fn unsaved(&self) -> u64 {
        self.open.iter().filter(|batch| !batch.saved).count() as u64
    }

    /// Saves finished work at the end of an incomplete run. Blocks that could not be written are saved in parts.
    pub(crate) fn keep(&mut self) -> Result<(), StoreError> {
        // Every thread must end, even if one of them fails.
        while self.wait_for_all().is_err() {}
        let unwritten = self.encoding.drain(..).flat_map(|block| block.batches);
        self.open = unwritten.chain(self.open.drain(..)).collect();
        match &self.file {
            Some(_) if self.finished.is_empty() => self.folder.remove_blocks()?,
            Some(output) => {
                let record = with_blocks(self.work.provenance, &self.finished);
                output.file.close(&record)?;
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
        self.file()?.file.publish(provenance, claim)
    }
}

/// Sorts rows by ordinal and start. Returns slices of these batches, without copying values.
fn sorted<'r>(batches: impl Iterator<Item = &'r RecordBatch>) -> Vec<RecordBatch> {
    let rows = batches.flat_map(|batch| {
        let keys = keys(batch).enumerate();
        keys.map(move |(row, key)| (key, batch, row))
    });
    let mut rows: Vec<((u64, u32), &RecordBatch, usize)> = rows.collect();
    rows.sort_unstable_by_key(|&(key, ..)| key);
    let runs = rows.chunk_by(|(_, batch, row), (_, next, after)| {
        std::ptr::eq(*batch, *next) && row + 1 == *after
    });
    runs.map(|run| run[0].1.slice(run[0].2, run.len()))
        .collect()
}
