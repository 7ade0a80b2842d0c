//! The writer thread: results into blocks of the output.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{EmbeddingLayout, Reject};

use crate::EngineError;
use crate::batch::{Batch, BatchResult};
use crate::checkpoint::Blocks;
use crate::event_log::EventLog;

/// Puts results where they belong.
pub(crate) struct Writer<'a> {
    pub(crate) layout: &'a EmbeddingLayout,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) events: EventLog,
    /// The batches that have come, or were in blocks of an earlier run.
    pub(crate) batches: u64,
    /// Of these, the ones of an earlier run.
    pub(crate) saved_batches: u64,
    /// Sequences that were computed again in f32.
    pub(crate) in_f32: u64,
    pub(crate) rejects: Vec<Reject>,
}

impl Writer<'_> {
    /// Writes all results until the other side hangs up. The file is not finished.
    ///
    /// Where fewer than `batches` have come by then, the results are saved for the next run.
    pub(crate) fn write(
        &mut self,
        queue: &Receiver<(Batch, BatchResult)>,
        batches: u64,
    ) -> Result<(), EngineError> {
        while let Ok((batch, result)) = queue.recv() {
            let started = Instant::now();
            let rejected = result.rejected.iter();
            let rejects = rejected.map(|&(row, reason)| batch.reject(row, reason));
            self.rejects.extend(rejects);
            let (stats, rejected) = (result.stats, result.rejected.len() as u64);
            self.blocks.push(&batch, result)?;
            if let Some(stats) = stats {
                self.in_f32 += stats.in_f32;
                self.events
                    .write_batch(&batch, &stats, started.elapsed(), rejected);
            } else {
                self.saved_batches += 1;
            }
            self.batches += 1;
        }
        if self.batches < batches {
            self.blocks.keep()?;
        } else {
            self.blocks.finish()?;
        }
        Ok(())
    }
}
