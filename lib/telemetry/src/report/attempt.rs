//! One attempt at a run: a process, from its start to its end or interruption.

use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_logs::Timestamp;
use plmkit_logs::event::{BatchDone, Event, MAX_WORKERS, Outcome, RunDone, RunStarted};
use rangemap::RangeSet;
use serde::Serialize;

use super::time_span::TimeSpan;
use super::worker::{WorkerCount, Workers, busy_s};

/// A process of a run. An interrupted run that was resumed has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttemptSummary {
    /// The name that the events carry.
    pub run: String,
    /// The machine.
    pub host: Option<String>,
    /// When it started, after loading the model.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub started: Option<Timestamp>,
    /// How it ended; `None` if it was killed or is still running.
    #[cfg_attr(test, schemars(schema_with = "super::tests::outcome_schema"))]
    pub outcome: Option<Outcome>,
    /// Seconds between the last event of the attempt before and the first of this one, with loading the model.
    pub gap_s: Option<f64>,
    /// Seconds of loading the model.
    pub load_s: Option<f64>,
    /// Seconds to the end or to the last known batch; of a log that lost its head, from its first batch on.
    pub elapsed_s: Option<f64>,
    /// Batches computed.
    pub batches: u64,
    /// Tokens computed.
    pub tokens: u64,
    /// Those of the batches that an attempt before had computed and not saved.
    pub batches_again: u64,
}

/// Returns the range of a number. Batches come nearly in order, so that a set of ranges has few.
pub(super) fn one(number: u64) -> Range<i128> {
    let number = number.into();
    number..number + 1
}

/// The events of one process. Elapsed time starts at 0 in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    /// The name, and the sums over the batches.
    pub(super) summary: AttemptSummary,
    pub(super) started: Option<RunStarted>,
    pub(super) done: Option<RunDone>,
    last_batch_s: Option<f64>,
    /// The lowest number of a batch.
    first_batch: Option<u64>,
    pub(super) span: TimeSpan,
    numbers: RangeSet<i128>,
    workers: BTreeMap<u64, WorkerCount>,
}

impl Attempt {
    pub(super) fn new(name: &str) -> Self {
        let mut attempt = Self::default();
        name.clone_into(&mut attempt.summary.run);
        attempt
    }

    /// Adds an event of this process. Returns false for a batch that was added before.
    pub(super) fn add(&mut self, event: &Event) -> bool {
        // A log that lost its head begins within a batch.
        let begun_s = match event {
            Event::Batch(batch) if self.started.is_none() => busy_s(batch),
            _ => 0.0,
        };
        self.span.add(event, begun_s);
        match event {
            Event::Run(started) => self.started = Some(started.clone()),
            Event::Batch(batch) => return self.add_batch(batch),
            Event::Done(done) => self.done = Some(done.clone()),
            Event::Probe(_) | Event::Unknown => {}
        }
        true
    }

    fn add_batch(&mut self, batch: &BatchDone) -> bool {
        if self.numbers.contains(&batch.batch.into()) {
            return false;
        }
        self.numbers.insert(one(batch.batch));
        let first = self.first_batch.unwrap_or(batch.batch);
        self.first_batch = Some(first.min(batch.batch));
        let times = [self.last_batch_s, batch.elapsed_s];
        self.last_batch_s = times.into_iter().flatten().reduce(f64::max);
        let worker = self.workers.entry(batch.worker.unwrap_or(0)).or_default();
        worker.add(batch);
        self.summary.batches += 1;
        self.summary.tokens += batch.tokens;
        true
    }

    /// Whether the log lost its head: the start of the run and its first batches.
    pub(super) fn is_cut(&self) -> bool {
        let done = self.done.as_ref();
        let lost = done.is_some_and(|done| done.tokens > self.summary.tokens);
        self.started.is_none() && self.first_batch.map_or(lost, |first| first > 0)
    }

    /// Returns the seconds to the end, or to the last known batch, by a monotonic clock; of a log that lost its head, from the
    /// start of its first batch on.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let starts_s = self.workers.values().filter_map(WorkerCount::start_s);
        let unseen_s = if self.is_cut() {
            starts_s.reduce(f64::min)?
        } else {
            0.0
        };
        Some(self.end_s()? - unseen_s)
    }

    fn end_s(&self) -> Option<f64> {
        let done = self.done.as_ref().map(|done| done.elapsed_s);
        done.or(self.last_batch_s)
    }

    /// Returns the seconds of loading the model.
    pub(super) fn load_s(&self) -> Option<f64> {
        Some(self.started.as_ref()?.load_ms? / 1000.0)
    }

    /// Adds the workers of this process. A process that was killed before its first batch took no known time.
    pub(super) fn add_workers(&self, workers: &mut Workers) {
        let end_s = self.end_s();
        if end_s.is_none() && self.summary.batches == 0 {
            return;
        }
        let declared = self.started.as_ref().and_then(|started| started.workers);
        // The events of the batches are right if the start is missing or wrong.
        let seen = self.workers.keys().next_back().map(|worker| worker + 1);
        let count = declared.max(seen).unwrap_or(1).clamp(1, MAX_WORKERS);
        let idle = WorkerCount::default();
        let counts = (0..count).map(|worker| self.workers.get(&worker).unwrap_or(&idle));
        workers.add(counts, end_s, self.is_cut());
    }

    /// Whether both attempts computed in the same way on the same devices.
    pub(super) fn has_setup_of(&self, other: &Self) -> bool {
        let setup = |attempt: &Self| {
            let run = attempt.started.clone()?;
            let flops = (run.flops_per_token, run.flops_per_pair);
            Some((run.device, run.dtype, run.gpu_uuids, flops))
        };
        setup(self) == setup(other)
    }

    /// Completes the summary; `before` is the attempt before.
    pub(super) fn finish(&self, before: Option<&Self>) -> AttemptSummary {
        let started = self.started.as_ref();
        AttemptSummary {
            host: started.and_then(|started| started.host.clone()),
            started: started.and_then(|started| started.time),
            outcome: self.done.as_ref().map(|done| done.outcome),
            gap_s: before.and_then(|before| before.span.gap_to(&self.span)),
            load_s: self.load_s(),
            elapsed_s: self.elapsed_s(),
            ..self.summary.clone()
        }
    }
}
