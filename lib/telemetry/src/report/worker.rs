//! The workers of a run.

use plmkit_contract::plural;
use serde::Serialize;

use plmkit_logs::event::{BatchDone, RunStarted};

use super::idle::{Idle, IdleTime};
use super::run::Throughput;
use super::share;
use super::stages::percent;

/// A worker of a run, or its only process. Batches that were computed again count again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkerSummary {
    /// Its number, from 0.
    pub worker: u64,
    /// UUID of its GPU, or the name of its GPU instance; `None` on a CPU or if unknown.
    pub gpu_uuid: Option<String>,
    /// The product name of its GPU.
    pub gpu_name: Option<String>,
    /// Batches computed.
    pub batches: u64,
    /// Sequences (rows) computed.
    pub sequences: u64,
    /// Tokens computed.
    pub tokens: u64,
    /// Share of the tokens that all workers computed.
    pub token_share: Option<f64>,
    /// Work over elapsed time.
    pub throughput: Throughput,
    /// Share of the elapsed time in which it waited for batches, the first one included.
    pub wait_share: Option<f64>,
    /// Share of the elapsed time in which its device computed.
    pub compute_share: Option<f64>,
    /// Time in which its device had no work.
    pub idle: Option<Idle>,
}

impl WorkerSummary {
    /// Returns the figures in a sentence.
    pub(super) fn sentence(&self) -> String {
        let mut parts = vec![format!("worker {}", self.worker)];
        let gpu = self.gpu_name.as_ref().zip(self.gpu_uuid.as_ref());
        parts.extend(gpu.map(|(name, uuid)| format!(" on {name} {uuid}")));
        parts.push(format!(": {}", plural(self.batches, "batch")));
        let shares = [
            ("of the tokens", self.token_share),
            ("of the time computing", self.compute_share),
            ("waiting", self.wait_share),
            ("without work", self.idle.map(|idle| idle.share)),
        ];
        let known = shares.into_iter();
        let known = known.filter_map(|(what, share)| Some(format!(", {} {what}", percent(share?))));
        parts.extend(known);
        let rates = self
            .throughput
            .sequences_per_s
            .zip(self.throughput.tokens_per_s);
        parts.extend(rates.map(|(sequences, tokens)| {
            format!(", {sequences:.1} sequences/s, {tokens:.0} tokens/s")
        }));
        parts.concat()
    }
}

/// Sums over the batches of a worker in one process of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCount {
    batches: u64,
    sequences: u64,
    tokens: u64,
    residues: u64,
    /// Sums of the times; `None` if a batch does not give its own.
    times_ms: Option<Times>,
    first: Option<First>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    compute: f64,
    wait: f64,
}

/// The first batch.
#[derive(Clone, Copy, Debug)]
struct First {
    /// Seconds until its computation began.
    began_s: f64,
    wait_ms: f64,
}

impl WorkerCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let own = batch.compute_ms.map(|compute| Times {
            compute,
            wait: batch.wait_ms.unwrap_or(0.0),
        });
        let before = match self.batches {
            0 => Some(Times::default()),
            _ => self.times_ms,
        };
        self.times_ms = before.zip(own).map(|(sum, own)| Times {
            compute: sum.compute + own.compute,
            wait: sum.wait + own.wait,
        });
        if let (None, Some(elapsed_s)) = (self.first, batch.elapsed_s) {
            let parts = [batch.h2d_ms, batch.compute_ms, batch.d2h_ms, batch.write_ms];
            self.first = Some(First {
                began_s: elapsed_s - parts.into_iter().flatten().sum::<f64>() / 1000.0,
                wait_ms: batch.wait_ms.unwrap_or(0.0),
            });
        }
        self.batches += 1;
        self.sequences += batch.sequences;
        self.tokens += batch.tokens;
        self.residues += batch.residues;
    }

    /// Divides the time of a process that took `elapsed_s`.
    fn idle_time(&self, elapsed_s: f64) -> Option<IdleTime> {
        if self.batches == 0 {
            return Some(IdleTime::new(elapsed_s, 0.0, elapsed_s, 0.0));
        }
        let times = self.times_ms?;
        let first = self.first?;
        let waiting_s = (times.wait - first.wait_ms) / 1000.0;
        let busy_s = times.compute / 1000.0;
        Some(IdleTime::new(elapsed_s, busy_s, first.began_s, waiting_s))
    }
}

/// A worker over all attempts at a run.
#[derive(Clone, Debug, Default)]
struct Total {
    count: WorkerCount,
    elapsed_s: Option<f64>,
    times_ms: Option<Times>,
    idle: Option<IdleTime>,
    attempts: u64,
}

/// The workers of a run, by number, over its attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Vec<Total>);

impl Workers {
    /// Adds worker `number` of a process that took `elapsed_s`.
    pub(super) fn add(&mut self, number: usize, count: &WorkerCount, elapsed_s: Option<f64>) {
        if self.0.len() <= number {
            self.0.resize_with(number + 1, Total::default);
        }
        let total = &mut self.0[number];
        let is_first = total.attempts == 0;
        let sum = |sum: Option<f64>, own: Option<f64>| match is_first {
            true => own,
            false => sum.zip(own).map(|(sum, own)| sum + own),
        };
        total.elapsed_s = sum(total.elapsed_s, elapsed_s);
        let own = if count.batches == 0 {
            Some(Times::default())
        } else {
            count.times_ms
        };
        let before = total.times_ms;
        let part = |part: fn(Times) -> f64| sum(before.map(part), own.map(part));
        let times = part(|times| times.compute).zip(part(|times| times.wait));
        total.times_ms = times.map(|(compute, wait)| Times { compute, wait });
        let idle = elapsed_s.and_then(|elapsed_s| count.idle_time(elapsed_s));
        total.idle = match is_first {
            true => idle,
            false => total.idle.zip(idle).map(|(sum, own)| sum.plus(own)),
        };
        total.attempts += 1;
        total.count.batches += count.batches;
        total.count.sequences += count.sequences;
        total.count.tokens += count.tokens;
        total.count.residues += count.residues;
    }

    /// Returns the time that all workers had together, in seconds.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let elapsed = self.0.iter().map(|total| total.elapsed_s);
        elapsed.sum::<Option<f64>>().filter(|_| !self.0.is_empty())
    }

    /// Returns the mean over the workers.
    pub(super) fn idle(&self) -> Option<Idle> {
        let mut times = self.0.iter().map(|total| total.idle);
        let sum = times.try_fold(IdleTime::default(), |sum, own| Some(sum.plus(own?)));
        sum?.finish()
    }

    /// Completes the table; `started` names their GPUs.
    pub(super) fn finish(&self, started: &RunStarted) -> Vec<WorkerSummary> {
        let all_tokens: u64 = self.0.iter().map(|total| total.count.tokens).sum();
        let totals = self.0.iter().enumerate();
        let summary = |(worker, total): (usize, &Total)| {
            let per_s = |part: f64| total.elapsed_s.and_then(|elapsed_s| share(part, elapsed_s));
            let count = &total.count;
            let gpu_uuid = gpu_of(worker, started);
            let of_time = |part_ms: fn(Times) -> f64| {
                let part_ms = total.times_ms.map(part_ms);
                // A killed run ends with its last known batch, and may have been in the next one.
                part_ms
                    .and_then(|part_ms| per_s(part_ms / 1000.0))
                    .map(|share| share.min(1.0))
            };
            WorkerSummary {
                worker: worker as u64,
                gpu_name: gpu_uuid.and_then(|uuid| name_of(uuid, started)),
                gpu_uuid: gpu_uuid.cloned(),
                batches: count.batches,
                sequences: count.sequences,
                tokens: count.tokens,
                token_share: share(count.tokens as f64, all_tokens as f64),
                throughput: Throughput {
                    sequences_per_s: per_s(count.sequences as f64),
                    residues_per_s: per_s(count.residues as f64),
                    tokens_per_s: per_s(count.tokens as f64),
                },
                wait_share: of_time(|times| times.wait),
                compute_share: of_time(|times| times.compute),
                idle: total.idle.and_then(IdleTime::finish),
            }
        };
        totals.map(summary).collect()
    }
}

/// Returns the GPU of a worker: the one that the run names for it, or the only one of the run.
fn gpu_of(worker: usize, started: &RunStarted) -> Option<&String> {
    match (&started.worker_gpus, &started.gpu_uuids) {
        (Some(gpus), _) => gpus.get(worker),
        (None, Some(gpus)) if gpus.len() == 1 => gpus.first(),
        _ => None,
    }
}

fn name_of(uuid: &str, started: &RunStarted) -> Option<String> {
    let place = started
        .gpu_uuids
        .iter()
        .flatten()
        .position(|known| known == uuid)?;
    started.gpu_names.as_ref()?.get(place).cloned()
}
