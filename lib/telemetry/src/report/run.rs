//! One run.

use serde::Serialize;

use super::mean::{Mean, share};
use super::packing::{Packing, PackingCount};
use super::queue::{Queue, QueueCount};
use super::seen::Seen;
use super::stages::{Stages, StagesCount};
use crate::Timestamp;
use crate::event::{BatchDone, Event, Outcome, RunDone, RunStarted};

/// What the events of one run say. Counts are sums over its batch events; a batch that is there twice counts once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// The run's name.
    pub run: String,
    /// The program.
    pub tool: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Digest of the model.
    pub model_digest: Option<String>,
    /// Where it computed.
    pub device: Option<String>,
    /// The GPUs, by UUID.
    pub gpu_uuids: Option<Vec<String>>,
    /// The number type of the computation.
    pub dtype: Option<String>,
    /// CPU threads.
    pub threads: Option<u64>,
    /// The processes that computed, where the run itself did not.
    pub workers: Option<u64>,
    /// When it started.
    pub started: Option<Timestamp>,
    /// How it ended; `None` where it was killed or is still running.
    pub outcome: Option<Outcome>,
    /// Seconds by a monotonic clock, to the end or to the last batch known.
    pub elapsed_s: Option<f64>,
    /// Batches computed.
    pub batches: u64,
    /// Batches to compute.
    pub batches_total: Option<u64>,
    /// Batches taken over from an earlier, interrupted run.
    pub batches_saved: Option<u64>,
    /// Sequences (rows) computed.
    pub sequences: u64,
    /// Residues computed.
    pub residues: u64,
    /// Tokens computed, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// How many times a batch was halved because memory ran out.
    pub oom_splits: u64,
    /// Sequences (rows) that could not be embedded.
    pub rejected: u64,
    /// Work over elapsed time.
    pub throughput: Throughput,
    /// Where the time went.
    pub stages: Stages,
    /// The queue before the device.
    pub queue: Queue,
    /// How full the batches were.
    pub packing: Packing,
    /// What else should be known.
    pub notes: Vec<String>,
}

/// Work over elapsed time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Sequences (rows) a second.
    pub sequences_per_s: Option<f64>,
    /// Residues a second.
    pub residues_per_s: Option<f64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct RunCount {
    run: String,
    started: Option<RunStarted>,
    done: Option<RunDone>,
    batch_elapsed_s: Mean,
    /// The earliest and the latest time of day of any event.
    seen: Option<(Timestamp, Timestamp)>,
    seen_batches: Seen,
    batches: u64,
    doubled: u64,
    sequences: u64,
    residues: u64,
    tokens: u64,
    oom_splits: u64,
    rejected: u64,
    stages: StagesCount,
    queue: QueueCount,
    packing: PackingCount,
}

impl RunCount {
    pub(super) fn new(run: &str) -> Self {
        Self {
            run: run.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, event: Event) {
        let time = match &event {
            Event::Run(started) => started.time,
            Event::Batch(batch) => batch.time,
            Event::Done(done) => done.time,
            Event::Probe(probed) => probed.time,
        };
        if let Some(time) = time {
            let (first, last) = self.seen.unwrap_or((time, time));
            self.seen = Some((first.min(time), last.max(time)));
        }
        match event {
            Event::Run(started) => self.started = Some(started),
            Event::Batch(batch) => self.add_batch(&batch),
            Event::Done(done) => self.done = Some(done),
            // Of no run.
            Event::Probe(_) => {}
        }
    }

    fn add_batch(&mut self, batch: &BatchDone) {
        if !self.seen_batches.insert(batch.batch) {
            self.doubled += 1;
            return;
        }
        if let Some(elapsed_s) = batch.elapsed_s {
            self.batch_elapsed_s.add(elapsed_s);
        }
        self.batches += 1;
        self.sequences += batch.sequences;
        self.residues += batch.residues;
        self.tokens += batch.tokens;
        self.oom_splits += batch.oom_splits;
        self.rejected += batch.rejected;
        self.stages.add(batch);
        self.queue.add(batch);
        self.packing.add(batch);
    }

    /// When the run was at work, by the clock on the wall.
    pub(super) fn seen(&self) -> Option<(Timestamp, Timestamp)> {
        self.seen
    }

    pub(super) fn finish(self) -> RunSummary {
        let rejected = self.rejected();
        let notes = self.notes();
        let elapsed_s = self
            .done
            .as_ref()
            .map(|done| done.elapsed_s)
            .or(self.batch_elapsed_s.max);
        let per_second =
            |count: u64| elapsed_s.and_then(|elapsed_s| share(count as f64, elapsed_s));
        let throughput = Throughput {
            sequences_per_s: per_second(self.sequences),
            residues_per_s: per_second(self.residues),
            tokens_per_s: per_second(self.tokens),
        };
        let named = |text: String| Some(text).filter(|text| !text.is_empty());
        let started = self.started.unwrap_or_default();
        RunSummary {
            run: self.run,
            tool: named(started.tool),
            version: named(started.version),
            model_digest: started.model_digest,
            device: started.device,
            gpu_uuids: started.gpu_uuids,
            dtype: started.dtype,
            threads: started.threads,
            workers: started.workers,
            started: started.time,
            outcome: self.done.map(|done| done.outcome),
            elapsed_s,
            batches: self.batches,
            batches_total: started.batches_total,
            batches_saved: started.batches_saved,
            sequences: self.sequences,
            residues: self.residues,
            tokens: self.tokens,
            oom_splits: self.oom_splits,
            rejected,
            throughput,
            stages: self
                .stages
                .finish(elapsed_s, started.workers.unwrap_or(1).max(1)),
            queue: self.queue.finish(),
            packing: self.packing.finish(),
            notes,
        }
    }

    /// What a run took over from an earlier one is in its last event only.
    fn rejected(&self) -> u64 {
        let said = self.done.as_ref().map_or(0, |done| done.rejected);
        said.max(self.rejected)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.rejected() > 0 {
            notes.push(format!(
                "{} sequences could not be embedded: the rejects file of the run says why",
                self.rejected()
            ));
        }
        let saved = self.started.as_ref().and_then(|run| run.batches_saved);
        if let Some(saved) = saved.filter(|&saved| saved > 0) {
            notes.push(format!(
                "{saved} batches were taken over from an earlier run"
            ));
        }
        if self.doubled > 0 {
            notes.push(format!(
                "batch events that are there again are counted once: {}",
                self.doubled
            ));
        }
        if self.oom_splits > 0 {
            notes.push(format!(
                "batches were halved for lack of memory, {} in all: pack with a smaller --max-batch-tokens",
                self.oom_splits
            ));
        }
        if let Some(done) = self.done.as_ref().filter(|done| done.tokens != self.tokens) {
            notes.push(format!(
                "events are missing: the batches hold {} tokens, the run says {}",
                self.tokens, done.tokens
            ));
        }
        if self.done.is_none() {
            notes.push("the run has no end: it was killed, or it is still running".to_owned());
        }
        notes
    }
}
