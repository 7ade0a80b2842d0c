//! The workers of a run.

use std::array;
use std::collections::BTreeMap;

use serde::Serialize;

use plmkit_logs::event::{BatchDone, RunStarted};

use super::idle::{Idle, IdleTime};
use super::run::Throughput;
use super::share;
use super::values::is_enough;

/// A worker of a run, or its only process. Batches that were computed again count again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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

/// A time of the batches of a worker, which some may lack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BatchTime {
    seconds: f64,
    batches: u64,
}

impl BatchTime {
    fn add(&mut self, ms: Option<f64>) {
        self.seconds += ms.unwrap_or(0.0) / 1000.0;
        self.batches += u64::from(ms.is_some());
    }

    fn plus(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.batches += other.batches;
    }

    /// Returns the time of all batches, if it is known for half of them.
    fn of_all(self, batches: u64) -> Option<f64> {
        let part = share(self.batches as f64, batches as f64);
        part.filter(|_| is_enough(part))
            .map(|part| self.seconds / part)
    }
}

/// Sums over the batches of a worker, in one process of the run or in all.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCount {
    batches: u64,
    /// Sequences, residues and tokens.
    amounts: [u64; 3],
    compute: BatchTime,
    wait: BatchTime,
    /// Seconds until the computation of the first batch began, and of these the wait for it.
    start_s: Option<(f64, f64)>,
    elapsed_s: Option<f64>,
    idle: Option<IdleTime>,
    gpu_name: Option<String>,
}

impl WorkerCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        if let Some(elapsed_s) = batch.elapsed_s {
            let start_s = elapsed_s - busy_s(batch);
            let first = self.start_s.filter(|(first_s, _)| *first_s <= start_s);
            let wait_s = batch.wait_ms.unwrap_or(0.0) / 1000.0;
            self.start_s = first.or(Some((start_s, wait_s)));
        }
        self.batches += 1;
        self.add_amounts([batch.sequences, batch.residues, batch.tokens]);
        self.compute.add(batch.compute_ms);
        self.wait.add(batch.wait_ms);
    }

    fn add_amounts(&mut self, amounts: [u64; 3]) {
        self.amounts = array::from_fn(|amount| self.amounts[amount] + amounts[amount]);
    }

    /// Adds the batches of a process that ended after `elapsed_s`.
    fn add_process(&mut self, own: &Self, elapsed_s: Option<f64>) {
        let idle = || {
            let (start_s, first_wait_s) = own.start_s?;
            Some(IdleTime::new(
                elapsed_s?,
                own.compute.of_all(own.batches)?,
                start_s,
                own.wait.of_all(own.batches)? - first_wait_s,
            ))
        };
        let idle = idle();
        self.batches += own.batches;
        self.add_amounts(own.amounts);
        self.compute.plus(own.compute);
        self.wait.plus(own.wait);
        self.elapsed_s = self.elapsed_s.zip(elapsed_s).map(|(sum, own)| sum + own);
        self.idle = self.idle.zip(idle).map(|(sum, own)| sum.plus(own, 1));
    }
}

/// Returns the seconds of the stages of a batch.
fn busy_s(batch: &BatchDone) -> f64 {
    let stages = [batch.h2d_ms, batch.compute_ms, batch.d2h_ms, batch.write_ms];
    stages.into_iter().flatten().sum::<f64>() / 1000.0
}

/// The workers of a run over its attempts, by number and GPU. A worker is there once it has done a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers {
    seen: BTreeMap<(u64, Option<String>), WorkerCount>,
    /// The time of the others.
    silent: IdleTime,
}

impl Workers {
    /// Adds the workers of a process that ended after `end_s`, and `silent` others that did no batch.
    pub(super) fn add(
        &mut self,
        counts: &BTreeMap<u64, WorkerCount>,
        silent: u64,
        started: &RunStarted,
        end_s: Option<f64>,
    ) {
        for (&number, count) in counts {
            let gpu_uuid = gpu_of(number, started);
            let worker = self.seen.entry((number, gpu_uuid.cloned()));
            let worker = worker.or_insert_with(|| WorkerCount {
                elapsed_s: Some(0.0),
                idle: Some(IdleTime::default()),
                gpu_name: gpu_uuid.and_then(|uuid| name_of(uuid, started)),
                ..WorkerCount::default()
            });
            worker.add_process(count, end_s);
        }
        let silent_s = end_s.unwrap_or(0.0);
        let idle = IdleTime::new(silent_s, 0.0, silent_s, 0.0);
        self.silent = self.silent.plus(idle, silent);
    }

    /// Returns the time that all workers had together, in seconds.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let seen = self.seen.values().map(|count| count.elapsed_s);
        Some(self.silent.elapsed_s() + seen.sum::<Option<f64>>()?)
    }

    /// Returns the mean over the workers.
    pub(super) fn idle(&self) -> Option<Idle> {
        let mut seen = self.seen.values().map(|count| count.idle);
        let sum = seen.try_fold(self.silent, |sum, own| Some(sum.plus(own?, 1)));
        sum?.finish()
    }

    /// Completes the table.
    pub(super) fn finish(self) -> Vec<WorkerSummary> {
        let all_tokens: u64 = self.seen.values().map(|count| count.amounts[2]).sum();
        let summary = |((worker, gpu_uuid), count): ((u64, Option<String>), WorkerCount)| {
            // A killed run ends with its last known batch, and may have waited for the next one.
            let of_time = |time: BatchTime| {
                Some(share(time.of_all(count.batches), count.elapsed_s)?.min(1.0))
            };
            let [sequences, _, tokens] = count.amounts;
            WorkerSummary {
                worker,
                wait_share: of_time(count.wait),
                compute_share: of_time(count.compute),
                gpu_name: count.gpu_name,
                gpu_uuid,
                batches: count.batches,
                sequences,
                tokens,
                token_share: share(tokens as f64, all_tokens as f64),
                throughput: Throughput::new(count.amounts, count.elapsed_s),
                idle: count.idle.and_then(IdleTime::finish),
            }
        };
        self.seen.into_iter().map(summary).collect()
    }
}

/// Returns the GPU of a worker: the one that the run names for it, or the only one of the run.
fn gpu_of(worker: u64, started: &RunStarted) -> Option<&String> {
    match (&started.worker_gpus, &started.gpu_uuids) {
        (Some(gpus), _) => gpus.get(worker as usize),
        (None, Some(gpus)) if gpus.len() == 1 => gpus.first(),
        _ => None,
    }
}

fn name_of(uuid: &str, started: &RunStarted) -> Option<String> {
    let mut uuids = started.gpu_uuids.iter().flatten();
    let place = uuids.position(|known| known == uuid)?;
    started.gpu_names.as_ref()?.get(place).cloned()
}
