//! Figures over the batches of a run.

use std::collections::BTreeMap;

use plmkit_logs::event::BatchDone;
use plmkit_logs::thresholds::PACKING_MILD_BELOW;
use plmkit_logs::{Mean, QueueState, Tier};
use serde::Serialize;

use super::figures::is_enough;
use super::share;

/// A figure of a batch, if it is known.
type Figure = fn(&BatchDone) -> Option<f64>;

/// The stages of a batch. They may overlap, so their shares need not add up to one.
#[rustfmt::skip]
const STAGES: [(&str, Figure); 5] = [
    ("wait", |batch| batch.wait_ms),
    ("h2d", |batch| batch.h2d_ms),
    ("compute", |batch| batch.compute_ms),
    ("d2h", |batch| batch.d2h_ms),
    ("write", |batch| batch.write_ms),
];

/// Upper edges of the wait histogram. A last bin takes all longer waits.
const EDGES_MS: [f64; 8] = [0.1, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// The stages by their names in run events; `None` without a known time.
pub type Stages = BTreeMap<&'static str, Option<Stage>>;

/// The most kernels: their names come from a log.
const MAX_KERNELS: usize = 16;

/// One stage over all batches with a known time of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// Total time.
    pub total_ms: f64,
    /// Mean time of a batch.
    pub mean_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// The share of the batches whose time is known.
    pub coverage: f64,
    /// Share of the run's elapsed time. Of the batches whose time is known, scaled
    /// to all; `None` below half of them.
    pub share: Option<f64>,
}

/// How well the queue fed the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    /// The state over the run, by the share of the time that waits took; `None` if it is unknown.
    pub state: Option<QueueState>,
    /// Mean number of batches that were ready.
    pub mean_depth: Option<f64>,
    /// Histogram of the waits.
    pub waits: Vec<WaitBin>,
}

/// A bin of the wait histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitBin {
    /// Upper edge of the bin, exclusive. The lower edge is that of the previous bin. `None` for the last bin.
    pub below_ms: Option<f64>,
    /// Batches.
    pub batches: u64,
}

/// How full the batches were, the last of each file left out: it holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Packing {
    /// Batches whose fill is known.
    pub batches: u64,
    /// Mean fill: tokens over the token budget, 0 to 1.
    pub mean_fill: Option<f64>,
    /// Least fill.
    pub min_fill: Option<f64>,
    /// Batches below 85 %.
    pub below_85: u64,
    /// The tier of the mean.
    pub tier: Option<Tier>,
}

/// Sums over the batches of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BatchSums {
    batches: u64,
    stages: [Mean; STAGES.len()],
    wait_bins: [u64; EDGES_MS.len() + 1],
    depth: Mean,
    fill: Mean,
    below_85: u64,
    /// Milliseconds by kernels, of the batches whose kernels were measured.
    pub(super) kernels: BTreeMap<String, f64>,
}

impl BatchSums {
    /// Adds a batch, also one that was computed again: it took its time.
    pub(super) fn add(&mut self, batch: &BatchDone) {
        self.batches += 1;
        for (mean, (_, of)) in self.stages.iter_mut().zip(STAGES) {
            mean.extend(of(batch));
        }
        if let Some(wait_ms) = batch.wait_ms {
            self.wait_bins[EDGES_MS.partition_point(|&edge| edge <= wait_ms)] += 1;
        }
        let depth = batch.queue_depth.map(|depth| depth as f64);
        self.depth.extend(depth);
        for (name, ms) in batch.kernels.iter().flatten() {
            if self.kernels.len() < MAX_KERNELS || self.kernels.contains_key(name) {
                *self.kernels.entry(name.clone()).or_default() += ms.clamp(0.0, 1e13);
            }
        }
    }

    /// Adds how full a batch was.
    pub(super) fn add_fill(&mut self, batch: &BatchDone) {
        if let Some(fill) = batch.fill().filter(|_| !batch.tail) {
            self.fill.add(fill);
            self.below_85 += u64::from(fill < PACKING_MILD_BELOW);
        }
    }

    /// Returns the sums over the batches of several runs. A stage that one of them does not know is unknown.
    pub(super) fn sum(runs: &[&Self]) -> Self {
        let mut sum = Self::default();
        for run in runs {
            sum.batches += run.batches;
            for (bin, of_run) in sum.wait_bins.iter_mut().zip(run.wait_bins) {
                *bin += of_run;
            }
            sum.depth.merge(&run.depth);
            sum.fill.merge(&run.fill);
            sum.below_85 += run.below_85;
            for (name, ms) in &run.kernels {
                *sum.kernels.entry(name.clone()).or_default() += ms;
            }
        }
        for (place, mean) in sum.stages.iter_mut().enumerate() {
            if runs.iter().all(|run| is_enough(run.coverage(place))) {
                for run in runs {
                    mean.merge(&run.stages[place]);
                }
            }
        }
        sum
    }

    /// Returns the share of the batches whose time of a stage is known.
    fn coverage(&self, place: usize) -> Option<f64> {
        share(self.stages[place].count as f64, self.batches as f64)
    }

    /// Returns the stages of a run that took `elapsed_s`.
    pub(super) fn stages(&self, elapsed_s: Option<f64>) -> Stages {
        let stages = STAGES.iter().enumerate();
        let stages = stages.map(|(place, (name, _))| (*name, self.stage(place, elapsed_s)));
        stages.collect()
    }

    fn stage(&self, place: usize, elapsed_s: Option<f64>) -> Option<Stage> {
        let (mean, coverage) = (&self.stages[place], self.coverage(place));
        let known = coverage.filter(|_| is_enough(coverage));
        let total_ms = known.map(|part| mean.sum / part);
        let share = share(total_ms, elapsed_s.map(|elapsed_s| elapsed_s * 1000.0));
        Some(Stage {
            total_ms: mean.sum,
            mean_ms: mean.mean()?,
            max_ms: mean.max?,
            coverage: coverage?,
            // The writes of a killed run may go beyond the last known time.
            share: share.map(|share| share.min(1.0)),
        })
    }

    /// `wait_share` is the share of the time that the device waited.
    pub(super) fn queue(&self, wait_share: Option<f64>) -> Queue {
        let edges = EDGES_MS.into_iter().map(Some).chain([None]);
        let bins = edges.zip(self.wait_bins);
        let bins = bins.map(|(below_ms, batches)| WaitBin { below_ms, batches });
        Queue {
            state: wait_share.map(QueueState::of),
            mean_depth: self.depth.mean(),
            waits: bins.collect(),
        }
    }

    pub(super) fn packing(&self) -> Packing {
        let mean = self.fill.mean();
        Packing {
            batches: self.fill.count,
            mean_fill: mean,
            min_fill: self.fill.min,
            below_85: self.below_85,
            tier: mean.map(Tier::of_packing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_in_one_bin_and_a_state_begins_above_its_threshold() {
        let mut sums = BatchSums::default();
        for wait_ms in [0.0, 0.1, 0.5, 1.0, 999.0, 1000.0, 1e9] {
            sums.add(&BatchDone {
                wait_ms: Some(wait_ms),
                ..BatchDone::default()
            });
        }
        let queue = sums.queue(None);
        let bins: Vec<u64> = queue.waits.iter().map(|bin| bin.batches).collect();
        assert_eq!(bins, [1, 2, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!((queue.state, queue.waits[8].below_ms), (None, None));
        let states = [0.01, 0.011, 0.05, 0.051].map(QueueState::of);
        let [full, normal, starved] = [QueueState::Full, QueueState::Normal, QueueState::Starved];
        assert_eq!(states, [full, normal, normal, starved]);
    }

    #[test]
    fn last_batches_do_not_count_and_a_threshold_is_not_below_itself() {
        let packing = |batches: &[(u64, bool)]| {
            let mut sums = BatchSums::default();
            for &(tokens, tail) in batches {
                sums.add_fill(&BatchDone {
                    tokens,
                    token_budget: Some(100),
                    tail,
                    ..BatchDone::default()
                });
            }
            // Neither a fill nor a budget.
            sums.add_fill(&BatchDone::default());
            let packing = sums.packing();
            (packing.below_85, packing.mean_fill, packing.tier)
        };
        let well = packing(&[(100, false), (90, false), (10, true)]);
        assert_eq!(well, (0, Some(0.95), Some(Tier::None)));
        assert_eq!(packing(&[(20, true)]), (0, None, None));
        let (below_85, _, tier) = packing(&[(85, false), (84, false), (80, false), (79, false)]);
        assert_eq!((below_85, tier), (3, Some(Tier::Mild)));
    }
}
