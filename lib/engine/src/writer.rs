//! The writer thread: results into blocks of the output.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{Reason, Reject};

use crate::EngineError;
use crate::block::Blocks;
use crate::journal::{Journal, Timing, Written};
use crate::output::{Columns, Laid};
use crate::pack::Embedded;
use crate::part::SavedRows;
use crate::plan::Job;

/// A pack and its results.
pub(crate) struct Finished {
    pub(crate) job: Job,
    pub(crate) result: Results,
}

pub(crate) enum Results {
    /// Of this run.
    Computed(Embedded, Timing),
    /// Of this run, by a worker.
    Laid(Laid, Timing),
    /// Of an earlier one.
    Saved(SavedRows),
}

/// Puts results where they belong.
pub(crate) struct Writer<'a> {
    pub(crate) columns: Columns<'a>,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) journal: Journal,
    /// The batches that have come, or were in blocks of an earlier run.
    pub(crate) batches: u64,
    /// Of these, the ones of an earlier run.
    pub(crate) saved_batches: u64,
    /// Sequences that were computed again in f32.
    pub(crate) in_f32: u64,
    pub(crate) rejects: Vec<Reject>,
}

impl Writer<'_> {
    /// Writes all that comes until the other side hangs up. The file is not finished.
    ///
    /// What was computed is saved if the file cannot be completed: `batches` is the number of all.
    pub(crate) fn write(
        &mut self,
        queue: &Receiver<Finished>,
        batches: u64,
    ) -> Result<(), EngineError> {
        while let Ok(Finished { job, result }) = queue.recv() {
            match result {
                Results::Computed(embedded, timing) => {
                    let started = Instant::now();
                    let laid = self.columns.lay(&job.pack, embedded)?;
                    self.computed(&job, laid, &timing, started)?;
                }
                Results::Laid(laid, timing) => {
                    self.computed(&job, laid, &timing, Instant::now())?;
                }
                Results::Saved(saved) => self.saved(&job, saved)?,
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

    fn computed(
        &mut self,
        job: &Job,
        laid: Laid,
        timing: &Timing,
        started: Instant,
    ) -> Result<(), EngineError> {
        self.in_f32 += laid.in_f32;
        self.blocks.push(job, laid.rows, &laid.rejected, false)?;
        self.reject(job, &laid.rejected);
        let written = Written {
            timing,
            write: started.elapsed(),
            oom_splits: laid.oom_splits,
            rejected: laid.rejected.len() as u64,
        };
        self.journal.batch(job, &written);
        Ok(())
    }

    fn saved(&mut self, job: &Job, saved: SavedRows) -> Result<(), EngineError> {
        self.blocks.push(job, saved.rows, &saved.rejected, true)?;
        self.reject(job, &saved.rejected);
        self.saved_batches += 1;
        Ok(())
    }

    fn reject(&mut self, job: &Job, rejected: &[(usize, Reason)]) {
        let rejects = rejected
            .iter()
            .map(|&(row, reason)| job.reject(row, reason));
        self.rejects.extend(rejects);
    }
}
