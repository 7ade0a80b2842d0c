//! The output in blocks: some consecutive batches whose rows have row groups to themselves.
//!
//! Where a block ends follows from the batches files and the columns, so that the bytes of a row group do not depend on where a
//! run was cut. All rows of a block come before all of the next one, and they are sorted before they are cut into row groups: the
//! output is in the order of the input.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use plmkit_contract::{EmbeddingLayout, Provenance};
use plmkit_store::{
    AtomicFile, EmbeddingsWriter, FileSummary, PlacedRowGroup, StoreError, UnfinishedEmbeddings,
};

use super::encoders::{Encoders, RowGroupThread, encoder_threads};
use super::part::keys;
use super::record::{Block, Rejected, provenance_of_blocks, provenance_of_part};
use super::run_folder::{RunFolder, remove_file};
use crate::RunConfig;
use crate::batch::{Batch, BatchResult};

/// Puts batches into blocks, has these encoded, and saves what is done.
pub(crate) struct Blocks<'a> {
    folder: &'a RunFolder,
    provenance: &'a Provenance,
    layout: &'a EmbeddingLayout,
    /// What messages name.
    named: PathBuf,
    /// Those of the whole output.
    planned: &'a [Range<u64>],
    /// How long results may be unsaved.
    every: Duration,
    saved: Instant,
    /// The batches of the block that is not complete.
    open: Vec<FinishedBatch>,
    encoding: VecDeque<Encoding>,
    file: Option<(UnfinishedEmbeddings, Encoders)>,
    /// The blocks in the file.
    finished: Vec<Block>,
    /// How many of these are on record.
    recorded: usize,
    /// The first batches of parts that hold rows of blocks which are not on record.
    parts: Vec<u64>,
}

/// The results of a batch.
struct FinishedBatch {
    index: u64,
    rows: RecordBatch,
    rejected: Vec<Rejected>,
    ends_whole: bool,
    /// Whether they are in a part.
    saved: bool,
}

/// A block on its way into the file.
struct Encoding {
    batches: Vec<FinishedBatch>,
    /// Row groups that are underway, and the ones before them.
    underway: VecDeque<RowGroupThread>,
    placed: Vec<PlacedRowGroup>,
    /// Whether all of its row groups were submitted.
    submitted: bool,
}

impl<'a> Blocks<'a> {
    /// Blocks `planned` of the output `provenance`, which has the columns of `layout`. The first may be `saved` in a file, and others
    /// in `parts`, by their first batches.
    pub(crate) fn new(
        (folder, config): (&'a RunFolder, &'a RunConfig),
        (provenance, layout): (&'a Provenance, &'a EmbeddingLayout),
        planned: &'a [Range<u64>],
        saved: Option<(UnfinishedEmbeddings, Vec<Block>)>,
        parts: Vec<u64>,
    ) -> Self {
        let (file, finished) = match saved {
            Some((file, blocks)) => (Some(file), blocks),
            None => (None, Vec::new()),
        };
        Self {
            named: folder.named(config),
            every: config.checkpoint_interval,
            saved: Instant::now(),
            open: Vec::new(),
            encoding: VecDeque::new(),
            file: file.map(with_encoders),
            recorded: finished.len(),
            finished,
            folder,
            provenance,
            layout,
            planned,
            parts,
        }
    }

    /// Adds the result of the next batch.
    pub(crate) fn push(&mut self, batch: &Batch, result: BatchResult) -> Result<(), StoreError> {
        // What no computation preceded is in a part.
        let saved = result.stats.is_none();
        if saved {
            // A part holds consecutive batches.
            self.save_rows()?;
        }
        let rejected = result.rejected.iter();
        self.open.push(FinishedBatch {
            index: batch.index,
            rows: result.rows,
            rejected: rejected
                .map(|&(row, reason)| Rejected::new(batch, row, reason))
                .collect(),
            ends_whole: batch.ends_whole,
            saved,
        });
        let block = self
            .planned
            .partition_point(|block| block.end <= batch.index);
        if self
            .planned
            .get(block)
            .is_some_and(|block| block.end == batch.index + 1)
        {
            self.encode()?;
        }
        if batch.ends_whole && self.saved.elapsed() >= self.every {
            self.save()?;
        }
        Ok(())
    }

    /// Has the rows of the open block encoded, which is complete. Waits while too many row groups are underway.
    fn encode(&mut self) -> Result<(), StoreError> {
        let batches = std::mem::take(&mut self.open);
        let rows = in_order(batches.iter().map(|batch| &batch.rows));
        let groups = self.file().map(|(_, encoders)| encoders.cut(&rows));
        self.encoding.push_back(Encoding {
            batches,
            underway: VecDeque::new(),
            placed: Vec::new(),
            submitted: false,
        });
        for rows in groups? {
            // Rows of a block are kept until its row groups are known to be in the file.
            while self.underway() >= encoder_threads() || self.first_is_written() {
                self.wait()?;
            }
            let thread = self.file()?.1.submit(rows)?;
            if let Some(block) = self.encoding.back_mut() {
                block.underway.push_back(thread);
            }
        }
        if let Some(block) = self.encoding.back_mut() {
            block.submitted = true;
        }
        self.finish_blocks();
        Ok(())
    }

    /// The output under construction.
    fn file(&mut self) -> Result<&mut (UnfinishedEmbeddings, Encoders), StoreError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => with_encoders(UnfinishedEmbeddings::create(
                &self.folder.blocks(),
                &self.named,
                self.layout,
            )?),
        };
        Ok(self.file.insert(file))
    }

    /// Row groups that are underway.
    fn underway(&self) -> usize {
        self.encoding.iter().map(|block| block.underway.len()).sum()
    }

    /// Whether the first row group that is underway has been written.
    fn first_is_written(&self) -> bool {
        let mut underway = self.encoding.iter().flat_map(|block| &block.underway);
        underway.next().is_some_and(RowGroupThread::is_finished)
    }

    /// Waits for the first row group that is underway.
    fn wait(&mut self) -> Result<(), StoreError> {
        let mut blocks = self.encoding.iter_mut();
        if let Some(block) = blocks.find(|block| !block.underway.is_empty())
            && let Some(thread) = block.underway.pop_front()
        {
            let placed = join(thread);
            // A block that lacks a row group is never complete, nor are those behind it.
            block.submitted &= placed.is_ok();
            block.placed.push(placed?);
        }
        self.finish_blocks();
        Ok(())
    }

    /// Waits for all.
    fn wait_for_all(&mut self) -> Result<(), StoreError> {
        while self.underway() > 0 {
            self.wait()?;
        }
        Ok(())
    }

    /// Takes over the blocks that are in the file as a whole.
    fn finish_blocks(&mut self) {
        while let Some(block) = self
            .encoding
            .pop_front_if(|block| block.submitted && block.underway.is_empty())
        {
            let [Some(first), Some(last)] = [block.batches.first(), block.batches.last()] else {
                continue;
            };
            self.finished.push(Block {
                batches: first.index..last.index + 1,
                row_groups: block.placed.len(),
                rejected: block
                    .batches
                    .iter()
                    .flat_map(|batch| batch.rejected.clone())
                    .collect(),
            });
            if let Some((file, _)) = &mut self.file {
                block.placed.into_iter().for_each(|group| file.push(group));
            }
        }
    }

    /// Saves all that is done, in blocks and, of the block that is not complete, in rows.
    fn save(&mut self) -> Result<(), StoreError> {
        self.wait_for_all()?;
        if let Some((file, _)) = &self.file
            && self.finished.len() > self.recorded
        {
            file.record(&provenance_of_blocks(self.provenance, &self.finished))?;
            self.recorded = self.finished.len();
            self.remove_parts()?;
        }
        self.save_rows()?;
        self.saved = Instant::now();
        Ok(())
    }

    /// Saves rows of the block that is not complete, those of whole proteins.
    fn save_rows(&mut self) -> Result<(), StoreError> {
        let end = self.open.iter().rposition(|batch| batch.ends_whole);
        let whole = &mut self.open[..end.map_or(0, |last| last + 1)];
        for batches in whole.chunk_by_mut(|one, next| one.saved == next.saved) {
            if batches[0].saved {
                continue;
            }
            let first = batches[0].index;
            let mut part = EmbeddingsWriter::create(&self.folder.part(first), self.layout)?;
            for batch in &*batches {
                part.write(&batch.rows)?;
            }
            let rejected = batches.iter().flat_map(|batch| &batch.rejected);
            let range = first..first + batches.len() as u64;
            part.finish(&provenance_of_part(self.provenance, &range, rejected))?;
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

    /// Batches that are not saved, since a protein is not finished.
    pub(crate) fn unsaved(&self) -> u64 {
        self.open.iter().filter(|batch| !batch.saved).count() as u64
    }

    /// The run ends before the output is complete: saves what is done. Blocks that could not be written are saved in rows.
    pub(crate) fn keep(&mut self) -> Result<(), StoreError> {
        // Until nothing more is written, even where one of them fails.
        while self.wait_for_all().is_err() {}
        let lost = self.encoding.drain(..).flat_map(|block| block.batches);
        self.open = lost.chain(self.open.drain(..)).collect();
        match &self.file {
            Some(_) if self.finished.is_empty() => self.folder.remove_blocks()?,
            Some((file, _)) => {
                file.close(&provenance_of_blocks(self.provenance, &self.finished))?;
                self.remove_parts()?;
            }
            None => {}
        }
        self.save_rows()
    }

    /// Waits until all blocks are written.
    pub(crate) fn finish(&mut self) -> Result<(), StoreError> {
        self.wait_for_all()
    }

    /// Gives the output its name, for which `claim` stands.
    pub(crate) fn publish(
        &mut self,
        provenance: &Provenance,
        claim: AtomicFile,
    ) -> Result<FileSummary, StoreError> {
        let (file, _) = self.file()?;
        file.publish(provenance, claim)
    }
}

fn with_encoders(file: UnfinishedEmbeddings) -> (UnfinishedEmbeddings, Encoders) {
    let encoders = Encoders::new(&file);
    (file, encoders)
}

fn join(thread: RowGroupThread) -> Result<PlacedRowGroup, StoreError> {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The rows by rising ordinal and start, as slices of these batches: no value is copied.
fn in_order<'r>(batches: impl Iterator<Item = &'r RecordBatch> + Clone) -> Vec<RecordBatch> {
    let mut rows: Vec<((u64, u32), &RecordBatch, usize)> = batches
        .flat_map(|batch| {
            keys(batch)
                .enumerate()
                .map(move |(row, key)| (key, batch, row))
        })
        .collect();
    rows.sort_unstable_by_key(|&(key, ..)| key);
    let runs = rows.chunk_by(|(_, batch, row), (_, next, after)| {
        std::ptr::eq(*batch, *next) && row + 1 == *after
    });
    runs.map(|run| run[0].1.slice(run[0].2, run.len()))
        .collect()
}
