//! The writer thread: results into row groups.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{EmbeddingLayout, Reason, Reject};
use plmkit_store::EmbeddingsWriter;

use crate::EngineError;
use crate::journal::{Journal, Timing, Written};
use crate::output::Laid;
use crate::pack::Embedded;
use crate::part::{SavedRows, Saver};
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
    pub(crate) file: EmbeddingsWriter,
    pub(crate) layout: &'a EmbeddingLayout,
    pub(crate) saver: Saver<'a>,
    pub(crate) journal: Journal,
    /// The batches that are in the file.
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
                    let laid = Laid::new(self.file.schema(), self.layout, &job.pack, embedded)?;
                    self.computed(&job, &laid, &timing, started)?;
                }
                Results::Laid(laid, timing) => {
                    self.computed(&job, &laid, &timing, Instant::now())?;
                }
                Results::Saved(saved) => self.saved(&job, &saved)?,
            }
            self.batches += 1;
        }
        if self.batches < batches {
            self.saver.publish()?;
        }
        Ok(())
    }

    fn computed(
        &mut self,
        job: &Job,
        laid: &Laid,
        timing: &Timing,
        started: Instant,
    ) -> Result<(), EngineError> {
        self.in_f32 += laid.in_f32;
        self.saver.push(job, &laid.rows, &laid.rejected)?;
        self.file.write(&laid.rows)?;
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

    fn saved(&mut self, job: &Job, saved: &SavedRows) -> Result<(), EngineError> {
        // A part holds consecutive batches.
        self.saver.publish()?;
        self.file.write(&saved.rows)?;
        self.reject(job, &saved.rejected);
        self.saved_batches += 1;
        Ok(())
    }

    fn reject(&mut self, job: &Job, rejected: &[(usize, Reason)]) {
        let rejects = rejected.iter().map(|&(row, reason)| {
            let (ordinal, start) = job.key(row);
            Reject {
                ordinal,
                id: job.pack.ids().value(row).to_owned(),
                length: u64::from(job.pack.lengths().value(row)),
                reason,
                start: Some(start),
            }
        });
        self.rejects.extend(rejects);
    }
}
