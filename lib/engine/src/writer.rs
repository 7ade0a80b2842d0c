//! The writer thread: results go into blocks of the output, and events into the log.

use std::time::Instant;

use crossbeam_channel::Receiver;

use crate::EngineError;
use crate::batch::{Batch, BatchResult};
use crate::checkpoint::Blocks;
use crate::event_log::EventLog;

/// Writes results, and counts them.
pub(crate) struct Writer<'a> {
    pub(crate) blocks: Blocks<'a>,
    pub(crate) events: EventLog,
    /// Written batches, those of earlier runs included.
    pub(crate) batches: u64,
    /// Batches of earlier runs.
    pub(crate) saved_batches: u64,
    /// Sequences that were computed again in f32.
    pub(crate) in_f32: u64,
}

impl Writer<'_> {
    /// Writes results until the queue closes, without finishing the file. If fewer than `batches` batches have come by then,
    /// saves the results for the next run.
    pub(crate) fn write(
        &mut self,
        queue: &Receiver<(Batch, BatchResult)>,
        batches: u64,
    ) -> Result<(), EngineError> {
        while let Ok((batch, result)) = queue.recv() {
            let started = Instant::now();
            let (stats, rejected) = (result.stats, result.rejected.len() as u64);
            self.blocks.push(&batch, result)?;
            if let Some(stats) = stats {
                self.in_f32 += stats.in_f32;
                let elapsed = started.elapsed();
                self.events.write_batch(&batch, &stats, elapsed, rejected);
            } else {
                self.saved_batches += 1;
            }
            self.batches += 1;
        }
        if self.batches < batches {
            self.blocks.keep()?;
        } else {
            self.blocks.wait_for_all()?;
        }
        Ok(())
    }
}
