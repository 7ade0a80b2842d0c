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

/// Sums over the batches of a worker, in one process of the run or in all.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCount {
    batches: u64,
    sequences: u64,
    tokens: u64,
    residues: u64,
    compute_s: f64,
    wait_s: f64,
    /// Batches that do not give both times.
    untimed: u64,
    /// Seconds until the computation of the first batch began, and of these the wait for it.
    start_s: Option<(f64, f64)>,
    elapsed_s: Option<f64>,
    idle: Option<IdleTime>,
}

impl WorkerCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let wait_s = batch.wait_ms.unwrap_or(0.0) / 1000.0;
        if let (None, Some(elapsed_s)) = (self.start_s, batch.elapsed_s) {
            let stages = [batch.h2d_ms, batch.compute_ms, batch.d2h_ms, batch.write_ms];
            let of_batch_s = stages.into_iter().flatten().sum::<f64>() / 1000.0;
            self.start_s = Some((elapsed_s - of_batch_s, wait_s));
        }
        self.batches += 1;
        self.sequences += batch.sequences;
        self.tokens += batch.tokens;
        self.residues += batch.residues;
        self.compute_s += batch.compute_ms.unwrap_or(0.0) / 1000.0;
        self.wait_s += wait_s;
        self.untimed += u64::from(batch.compute_ms.is_none() || batch.wait_ms.is_none());
    }

    /// Ends the process after `elapsed_s`.
    fn end(&self, elapsed_s: Option<f64>) -> Self {
        let start_s = match self.batches {
            0 => elapsed_s.map(|elapsed_s| (elapsed_s, 0.0)),
            _ => self.start_s,
        };
        let known = elapsed_s.zip(start_s).filter(|_| self.untimed == 0);
        let idle = known.map(|(elapsed_s, (start_s, first_wait_s))| {
            IdleTime::new(
                elapsed_s,
                self.compute_s,
                start_s,
                self.wait_s - first_wait_s,
            )
        });
        Self {
            elapsed_s,
            idle,
            ..self.clone()
        }
    }

    fn plus(&self, other: &Self) -> Self {
        Self {
            batches: self.batches + other.batches,
            sequences: self.sequences + other.sequences,
            tokens: self.tokens + other.tokens,
            residues: self.residues + other.residues,
            compute_s: self.compute_s + other.compute_s,
            wait_s: self.wait_s + other.wait_s,
            untimed: self.untimed + other.untimed,
            start_s: None,
            elapsed_s: self
                .elapsed_s
                .zip(other.elapsed_s)
                .map(|(sum, own)| sum + own),
            idle: self.idle.zip(other.idle).map(|(sum, own)| sum.plus(own)),
        }
    }
}

/// The workers of a run, by number, over its attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Vec<WorkerCount>);

impl Workers {
    /// Adds worker `number` of a process that took `elapsed_s`. The workers of a process are added in their order.
    pub(super) fn add(&mut self, number: usize, count: &WorkerCount, elapsed_s: Option<f64>) {
        let ended = count.end(elapsed_s);
        match self.0.get_mut(number) {
            Some(sum) => *sum = sum.plus(&ended),
            None => self.0.push(ended),
        }
    }

    /// Returns the time that all workers had together, in seconds.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let elapsed = self.0.iter().map(|count| count.elapsed_s);
        elapsed.sum::<Option<f64>>().filter(|_| !self.0.is_empty())
    }

    /// Returns the mean over the workers.
    pub(super) fn idle(&self) -> Option<Idle> {
        let mut times = self.0.iter().map(|count| count.idle);
        let sum = times.try_fold(IdleTime::default(), |sum, own| Some(sum.plus(own?)));
        sum?.finish()
    }

    /// Completes the table; `started` names their GPUs.
    pub(super) fn finish(&self, started: &RunStarted) -> Vec<WorkerSummary> {
        let all_tokens: u64 = self.0.iter().map(|count| count.tokens).sum();
        let summary = |(worker, count): (usize, &WorkerCount)| {
            let per_s = |part: f64| share(part, count.elapsed_s?);
            // A killed run ends with its last known batch, and may have waited for the next one.
            let of_time = |part_s: f64| {
                let known = per_s(part_s).filter(|_| count.untimed == 0);
                known.map(|share| share.min(1.0))
            };
            let gpu_uuid = gpu_of(worker, started);
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
                wait_share: of_time(count.wait_s),
                compute_share: of_time(count.compute_s),
                idle: count.idle.and_then(IdleTime::finish),
            }
        };
        self.0.iter().enumerate().map(summary).collect()
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
