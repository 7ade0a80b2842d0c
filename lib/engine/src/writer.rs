//! The writer thread: results into row groups.

use std::time::Instant;

use crossbeam_channel::Receiver;
use plmkit_contract::{EmbeddingLayout, Reason, Reject};
use plmkit_store::EmbeddingsWriter;

use crate::EngineError;
use crate::journal::{Journal, Timing, Written};
use crate::output::rows;
use crate::pack::Embedded;
use crate::part::{SavedRows, Saver};
use crate::plan::Job;

/// A pack and its results.
pub(crate) struct Finished<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) result: Results,
}

pub(crate) enum Results {
    /// Of this run.
    Computed(Embedded, Timing),
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
        queue: &Receiver<Finished<'_>>,
        batches: u64,
    ) -> Result<(), EngineError> {
        while let Ok(Finished { job, result }) = queue.recv() {
            match result {
                Results::Computed(embedded, timing) => self.computed(&job, embedded, &timing)?,
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
        job: &Job<'_>,
        embedded: Embedded,
        timing: &Timing,
    ) -> Result<(), EngineError> {
        let started = Instant::now();
        let rejected = embedded.rejected.clone();
        let oom_splits = embedded.oom_splits;
        self.in_f32 += embedded.in_f32;
        let rows = rows(self.file.schema(), self.layout, &job.pack, embedded)?;
        self.saver.push(job, &rows, &rejected)?;
        self.file.write(&rows)?;
        self.reject(job, &rejected);
        let written = Written {
            timing,
            write: started.elapsed(),
            oom_splits,
            rejected: rejected.len() as u64,
        };
        self.journal.batch(job, &written);
        Ok(())
    }

    fn saved(&mut self, job: &Job<'_>, saved: &SavedRows) -> Result<(), EngineError> {
        // A part holds consecutive batches.
        self.saver.publish()?;
        self.file.write(&saved.rows)?;
        self.reject(job, &saved.rejected);
        self.saved_batches += 1;
        Ok(())
    }

    fn reject(&mut self, job: &Job<'_>, rejected: &[(usize, Reason)]) {
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
