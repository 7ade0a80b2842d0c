//! One attempt at a run: a process, from its start to its end or interruption.

use std::collections::BTreeMap;
use std::ops::Range;

use plmkit_logs::Timestamp;
use plmkit_logs::event::{BatchDone, Event, MAX_WORKERS, Outcome, RunDone, RunStarted};
use rangemap::RangeSet;
use serde::Serialize;

use super::times::{TimeSpan, different_gpus};
use super::worker::{WorkerCount, Workers};

/// A process of a run. An interrupted run that was resumed has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AttemptSummary {
    /// The name that the events carry.
    pub run: String,
    /// The machine.
    pub host: Option<String>,
    /// The device: `cpu`, `cuda`, `cuda:0`.
    pub device: Option<String>,
    /// UUIDs of its GPUs, each once, in their order.
    pub gpu_uuids: Option<Vec<String>>,
    /// Hours of its GPUs, with loading the model; 0 on a CPU.
    pub gpu_hours: Option<f64>,
    /// Energy of its GPUs, in joules: see [`Energy`](super::Energy).
    pub energy_j: Option<f64>,
    /// When it started, after loading the model.
    pub started: Option<Timestamp>,
    /// How it ended; `None` if it was killed or is still running.
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
    /// The number type of the computation.
    #[serde(skip)]
    pub(super) dtype: Option<String>,
}

impl AttemptSummary {
    /// Returns the number of its GPUs, 0 on a CPU; `None` if it is unknown.
    pub(super) fn gpu_count(&self) -> Option<usize> {
        match (self.device.as_deref()?, &self.gpu_uuids) {
            ("cpu", _) => Some(0),
            (_, Some(uuids)) => Some(uuids.len()),
            (device, None) => device.starts_with("cuda:").then_some(1),
        }
    }

    /// Returns the hours of its GPUs, to the last known batch and with loading the model.
    fn gpu_hours(&self) -> Option<f64> {
        match self.gpu_count()? {
            0 => Some(0.0),
            gpus => Some((self.load_s? + self.elapsed_s.unwrap_or(0.0)) * gpus as f64 / 3600.0),
        }
    }
}

/// Returns the range of a number. Batches come nearly in order, so that a set of ranges has few.
pub(super) fn one(number: u64) -> Range<i128> {
    let number = number.into();
    number..number + 1
}

/// The events of one process. Elapsed time starts at 0 in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    /// What is known so far.
    pub(super) summary: AttemptSummary,
    pub(super) started: Option<RunStarted>,
    pub(super) done: Option<RunDone>,
    /// Seconds of the attempts before.
    pub(super) before_s: f64,
    pub(super) span: TimeSpan,
    numbers: RangeSet<i128>,
    /// Tokens, and pairs of tokens of one sequence, without those that were computed again. Pairs are unknown if a batch does not
    /// give them.
    new_tokens: u64,
    new_pairs: Option<f64>,
    workers: BTreeMap<u64, WorkerCount>,
}

impl Attempt {
    /// An attempt at a run that took `before_s` before.
    pub(super) fn new(name: &str, before_s: f64) -> Self {
        let mut attempt = Self {
            before_s,
            new_pairs: Some(0.0),
            ..Self::default()
        };
        name.clone_into(&mut attempt.summary.run);
        attempt
    }

    /// Adds an event of this process. Returns false for a batch that was added before.
    pub(super) fn add(&mut self, event: &Event) -> bool {
        self.span.add(event);
        let summary = &mut self.summary;
        match event {
            Event::Run(started) => {
                summary.host.clone_from(&started.host);
                summary.device.clone_from(&started.device);
                summary.dtype.clone_from(&started.dtype);
                let uuids = different_gpus(started);
                summary.gpu_uuids = Some(uuids).filter(|uuids| !uuids.is_empty());
                summary.started = started.time;
                summary.load_s = started.load_ms.map(|load_ms| load_ms / 1000.0);
                self.started = Some(started.clone());
            }
            Event::Batch(batch) => return self.add_batch(batch),
            Event::Done(done) => {
                summary.outcome = Some(done.outcome);
                summary.elapsed_s = Some(done.elapsed_s);
                self.done = Some(done.clone());
            }
            Event::Probe(_) | Event::Unknown => {}
        }
        true
    }

    fn add_batch(&mut self, batch: &BatchDone) -> bool {
        if self.numbers.contains(&batch.batch.into()) {
            return false;
        }
        self.numbers.insert(one(batch.batch));
        if self.done.is_none() {
            let times = [self.summary.elapsed_s, batch.elapsed_s];
            self.summary.elapsed_s = times.into_iter().flatten().reduce(f64::max);
        }
        let worker = self.workers.entry(batch.worker.unwrap_or(0)).or_default();
        worker.add(batch);
        self.summary.batches += 1;
        self.summary.tokens += batch.tokens;
        true
    }

    /// Adds the workers of this process. A process that was killed before its first batch took no known time.
    pub(super) fn add_workers(&self, workers: &mut Workers) {
        let end_s = self.summary.elapsed_s;
        if end_s.is_none() && self.summary.batches == 0 {
            return;
        }
        let none = RunStarted::default();
        let started = self.started.as_ref().unwrap_or(&none);
        let declared = started.workers.unwrap_or(1).clamp(1, MAX_WORKERS);
        let silent = declared.saturating_sub(self.workers.len() as u64);
        workers.add(&self.workers, silent, started, end_s);
    }

    /// Adds the work of a batch that no attempt before had computed.
    pub(super) fn add_new(&mut self, batch: &BatchDone) {
        self.new_tokens += batch.tokens;
        let pairs = self.new_pairs.zip(batch.pairs);
        self.new_pairs = pairs.map(|(sum, pairs)| sum + pairs as f64);
    }

    /// Whether it computed batches that no attempt before had.
    pub(super) fn has_new(&self) -> bool {
        self.new_tokens > 0
    }

    /// Counts floating-point operations on real tokens, including attention. Returns `None` if the process or a batch leaves a part
    /// unknown: a partial sum would be wrong.
    pub(super) fn flops(&self) -> Option<f64> {
        let started = self.started.as_ref()?;
        let of_tokens = self.new_tokens as f64 * started.flops_per_token? as f64;
        Some(of_tokens + self.new_pairs? * started.flops_per_pair? as f64)
    }

    /// Whether both attempts computed on the same GPUs; without GPUs, on the same device.
    pub(super) fn has_gpus_of(&self, other: &Self) -> bool {
        let (own, other) = (&self.summary, &other.summary);
        own.gpu_uuids == other.gpu_uuids && (own.gpu_uuids.is_some() || own.device == other.device)
    }

    /// Completes the summary; `before` is the attempt before.
    pub(super) fn finish(&self, before: Option<&Self>) -> AttemptSummary {
        AttemptSummary {
            gap_s: before.and_then(|before| before.span.gap_to(&self.span)),
            gpu_hours: self.summary.gpu_hours(),
            ..self.summary.clone()
        }
    }
}
