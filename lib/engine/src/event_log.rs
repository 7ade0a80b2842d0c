//! The run events of this run.

use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use plmkit_logs::event::{
    BatchDone, Event, EventWriter, Outcome, RunDone, RunStarted, Totals, milliseconds, run_id,
};
use plmkit_logs::{ProgressReporter, Tier, Timestamp, boot_id, boot_seconds, cpu_time, host_name};
use plmkit_store::StoreError;

/// Writes run events, if `--events` is given, and sums up the batches.
pub(crate) struct EventLog {
    start: Instant,
    cpu_before: Duration,
    writer: Option<EventWriter>,
    /// `None` after the end.
    progress: Option<ProgressReporter>,
    /// The name of the run.
    run: String,
    /// The totals of the batches so far.
    pub(crate) total: Totals,
    /// Sequences of the output that could not be embedded, those of earlier runs included.
    pub(crate) rejected: u64,
}

impl EventLog {
    /// Opens the log at `path`, if there is one, and writes the first event with a new run id.
    pub(crate) fn start(path: Option<&Path>, started: RunStarted) -> Result<Self, StoreError> {
        let mut log = Self {
            start: Instant::now(),
            cpu_before: cpu_time(),
            writer: path.map(EventWriter::append).transpose()?,
            progress: Some(ProgressReporter::default()),
            run: run_id(),
            total: Totals::default(),
            rejected: 0,
        };
        log.write(&Event::Run(RunStarted {
            run: log.run.clone(),
            time: Some(Timestamp::now()),
            host: host_name(),
            boot_id: boot_id(),
            boot_s: Some(boot_seconds()),
            ..started
        }));
        Ok(log)
    }

    /// Writes the event of a batch that is in the output, after writing it took the time `write`.
    pub(crate) fn write_batch(&mut self, batch: BatchDone, write: Duration) {
        let elapsed_s = self.elapsed().as_secs_f64();
        let mut event = BatchDone {
            run: self.run.clone(),
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            elapsed_s: Some(elapsed_s),
            cpu_s: Some(cpu_time().saturating_sub(self.cpu_before).as_secs_f64()),
            write_ms: Some(milliseconds(write)),
            ..batch
        };
        self.total = mem::take(&mut self.total) + Totals::from(&event);
        event.total = Some(self.total.clone());
        let progress = self.progress.as_mut();
        let told = progress.and_then(|progress| progress.add(&self.total, elapsed_s));
        if let Some((line, warnings)) = told {
            tracing::info!("{line}");
            warn_of(&warnings);
        }
        self.write(&Event::Batch(event));
    }

    /// Writes the last event. Returns how full the batches were and how long devices waited.
    pub(crate) fn end(&mut self, outcome: Outcome) -> Vec<String> {
        // After an error, the error is all there is to say.
        let progress = self.progress.take();
        let progress = progress.filter(|_| outcome != Outcome::Failed);
        let elapsed_s = self.elapsed().as_secs_f64();
        let (tiers, warnings) =
            progress.map_or_else(Default::default, |run| run.finish(&self.total, elapsed_s));
        warn_of(&warnings);
        self.write(&Event::Done(RunDone {
            run: self.run.clone(),
            time: Some(Timestamp::now()),
            boot_s: Some(boot_seconds()),
            rejected: self.rejected,
            elapsed_s: self.elapsed().as_secs_f64(),
            cpu_s: Some(cpu_time().saturating_sub(self.cpu_before).as_secs_f64()),
            outcome,
            total: Some(self.total.clone()),
        }));
        tiers
    }

    /// Time since the run began, after the model was loaded.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn write(&mut self, event: &Event) {
        // A run goes on if its log cannot be written. The writer returns the error once.
        if let Some(Err(error)) = self.writer.as_mut().map(|writer| writer.write(event)) {
            tracing::warn!("{error}; the run goes on without run events");
        }
    }
}

fn warn_of(warnings: &[(Tier, String)]) {
    for (tier, warning) in warnings {
        if *tier == Tier::Critical {
            tracing::error!("{tier}: {warning}");
        } else {
            tracing::warn!("{warning}");
        }
    }
}
