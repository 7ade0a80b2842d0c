//! The workers of a run.

use std::array;

use plmkit_contract::plural;
use serde::Serialize;

use plmkit_logs::event::{BatchDone, RunStarted};

use super::idle::{Idle, IdleTime};
use super::run::Throughput;
use super::{joined, percent, share};

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
        let gpu = self.gpu_name.as_ref().zip(self.gpu_uuid.as_ref());
        let gpu = gpu.map_or_else(String::new, |(name, uuid)| format!(" on {name} {uuid}"));
        let batches = plural(self.batches, "batch");
        let worker = format!("worker {}{gpu}: {batches}", self.worker);
        let shares = [
            ("of the tokens", self.token_share),
            ("of the time computing", self.compute_share),
            ("waiting", self.wait_share),
            ("without work", self.idle.map(|idle| idle.share)),
        ];
        let shares = shares.map(|(what, share)| Some(format!("{} {what}", percent(share?))));
        let (rates, all) = (&self.throughput, [Some(worker)].into_iter().chain(shares));
        let rates = rates.sequences_per_s.zip(rates.tokens_per_s);
        let rates = rates
            .map(|(sequences, tokens)| format!("{sequences:.1} sequences/s, {tokens:.0} tokens/s"));
        joined(all.chain([rates]), ", ")
    }
}

/// Sums over the batches of a worker, in one process of the run or in all.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCount {
    batches: u64,
    /// Sequences, residues and tokens.
    amounts: [u64; 3],
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
        if let Some(elapsed_s) = batch.elapsed_s {
            let start_s = elapsed_s - busy_s(batch);
            let first = self.start_s.filter(|(first_s, _)| *first_s <= start_s);
            self.start_s = first.or(Some((start_s, wait_s)));
        }
        self.batches += 1;
        self.add_amounts([batch.sequences, batch.residues, batch.tokens]);
        self.compute_s += batch.compute_ms.unwrap_or(0.0) / 1000.0;
        self.wait_s += wait_s;
        self.untimed += u64::from(batch.compute_ms.is_none() || batch.wait_ms.is_none());
    }

    /// Returns when the computation of its first batch began.
    pub(super) fn start_s(&self) -> Option<f64> {
        Some(self.start_s?.0.max(0.0))
    }

    fn add_amounts(&mut self, amounts: [u64; 3]) {
        self.amounts = array::from_fn(|amount| self.amounts[amount] + amounts[amount]);
    }

    /// Adds the batches of a process that ended after `end_s`. If its log lost its head, the time of a worker begins with the
    /// first batch that is left.
    fn add_process(&mut self, own: &Self, end_s: Option<f64>, is_cut: bool) {
        let start_s = match own.batches {
            0 => end_s.map(|end_s| (end_s, 0.0)),
            _ => own.start_s,
        };
        let unseen_s = match start_s {
            _ if !is_cut => Some(0.0),
            start_s => start_s.map(|(start_s, _)| start_s.max(0.0)),
        };
        let elapsed_s = end_s
            .zip(unseen_s)
            .map(|(end_s, unseen_s)| end_s - unseen_s);
        let known = elapsed_s.zip(start_s).zip(unseen_s);
        let known = known.filter(|_| own.untimed == 0);
        let idle = known.map(|((elapsed_s, (start_s, first_wait_s)), unseen_s)| {
            let starting_s = start_s - unseen_s;
            IdleTime::new(
                elapsed_s,
                own.compute_s,
                starting_s,
                own.wait_s - first_wait_s,
            )
        });
        self.batches += own.batches;
        self.add_amounts(own.amounts);
        self.compute_s += own.compute_s;
        self.wait_s += own.wait_s;
        self.untimed += own.untimed;
        self.elapsed_s = self.elapsed_s.zip(elapsed_s).map(|(sum, own)| sum + own);
        self.idle = self.idle.zip(idle).map(|(sum, own)| sum.plus(own));
    }
}

/// Returns the seconds of the stages of a batch.
pub(super) fn busy_s(batch: &BatchDone) -> f64 {
    let stages = [batch.h2d_ms, batch.compute_ms, batch.d2h_ms, batch.write_ms];
    stages.into_iter().flatten().sum::<f64>() / 1000.0
}

/// The workers of a run, by number, over its attempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers(Vec<WorkerCount>);

impl Workers {
    /// Adds the workers of a process that ended after `end_s`, in their order.
    pub(super) fn add<'a>(
        &mut self,
        counts: impl Iterator<Item = &'a WorkerCount>,
        end_s: Option<f64>,
        is_cut: bool,
    ) {
        for (number, count) in counts.enumerate() {
            if number == self.0.len() {
                self.0.push(WorkerCount {
                    elapsed_s: Some(0.0),
                    idle: Some(IdleTime::default()),
                    ..WorkerCount::default()
                });
            }
            self.0[number].add_process(count, end_s, is_cut);
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
        let all_tokens: u64 = self.0.iter().map(|count| count.amounts[2]).sum();
        let summary = |(worker, count): (usize, &WorkerCount)| {
            let timed_s = count.elapsed_s.filter(|_| count.untimed == 0);
            // A killed run ends with its last known batch, and may have waited for the next one.
            let of_time = |part_s: f64| Some(share(part_s, timed_s)?.min(1.0));
            let gpu_uuid = gpu_of(worker, started);
            let [sequences, _, tokens] = count.amounts;
            WorkerSummary {
                worker: worker as u64,
                gpu_name: gpu_uuid.and_then(|uuid| name_of(uuid, started)),
                gpu_uuid: gpu_uuid.cloned(),
                batches: count.batches,
                sequences,
                tokens,
                token_share: share(tokens as f64, all_tokens as f64),
                throughput: Throughput::new(count.amounts, count.elapsed_s),
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
    let mut uuids = started.gpu_uuids.iter().flatten();
    let place = uuids.position(|known| known == uuid)?;
    started.gpu_names.as_ref()?.get(place).cloned()
}
