//! The queue of batches before the device.

use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;
use plmkit_logs::thresholds::{
    IDLE_MILD_ABOVE, QUEUE_FULL_BELOW_MS, QUEUE_FULL_UP_TO, QUEUE_STARVED_ABOVE_MS,
};

/// Upper edges of the wait histogram. A last bin takes all longer waits.
const EDGES_MS: [f64; 8] = [0.1, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// How well the queue fed the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Queue {
    /// The state over the run, by the share of the time that waits took; `None` if it is unknown.
    pub state: Option<QueueState>,
    /// Batches with a known wait.
    pub batches: u64,
    /// Batches that were ready: the wait was below [`QUEUE_FULL_BELOW_MS`].
    pub full: u64,
    /// Batches with a wait above [`QUEUE_STARVED_ABOVE_MS`].
    pub starved: u64,
    /// Mean number of batches that were ready.
    pub mean_depth: Option<f64>,
    /// Histogram of the waits.
    pub waits: Vec<WaitBin>,
}

/// The state of a queue, by the share of the time that the device waited for batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueueState {
    /// The device found its next batch ready: it waited for at most 1 % of the time.
    Full,
    /// The device waited for at most 5 % of the time.
    Normal,
    /// The device waited for longer.
    Starved,
}

impl QueueState {
    /// Returns the state of a queue before a device that waits for this share of the time.
    pub(crate) fn of(wait_share: f64) -> Self {
        match wait_share {
            _ if wait_share <= QUEUE_FULL_UP_TO => Self::Full,
            _ if wait_share <= IDLE_MILD_ABOVE => Self::Normal,
            _ => Self::Starved,
        }
    }
}

/// A bin of the wait histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitBin {
    /// Upper edge of the bin, exclusive. The lower edge is that of the previous bin. `None` for the last bin.
    pub below_ms: Option<f64>,
    /// Batches.
    pub batches: u64,
}

/// Sums over the batches of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueCount {
    bins: [u64; EDGES_MS.len() + 1],
    full: u64,
    starved: u64,
    depth: Mean,
}

impl QueueCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        self.depth
            .extend(batch.queue_depth.map(|depth| depth as f64));
        let Some(wait_ms) = batch.wait_ms else { return };
        self.bins[EDGES_MS.partition_point(|&edge| edge <= wait_ms)] += 1;
        self.full += u64::from(wait_ms < QUEUE_FULL_BELOW_MS);
        self.starved += u64::from(wait_ms > QUEUE_STARVED_ABOVE_MS);
    }

    /// `wait_share` is the share of the time that the device waited.
    pub(super) fn finish(&self, wait_share: Option<f64>) -> Queue {
        let batches: u64 = self.bins.iter().sum();
        let edges = EDGES_MS.into_iter().map(Some).chain([None]);
        Queue {
            state: wait_share.map(QueueState::of),
            batches,
            full: self.full,
            starved: self.starved,
            mean_depth: self.depth.mean(),
            waits: edges
                .zip(self.bins)
                .map(|(below_ms, batches)| WaitBin { below_ms, batches })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(waits_ms: &[f64]) -> Queue {
        let mut count = QueueCount::default();
        for &wait_ms in waits_ms {
            count.add(&BatchDone {
                wait_ms: Some(wait_ms),
                ..BatchDone::default()
            });
        }
        count.finish(None)
    }

    #[test]
    fn a_state_begins_above_its_threshold_and_thresholds_of_a_batch_are_normal() {
        let thresholds = queue(&[0.999, 1.0, 50.0, 50.001]);
        assert_eq!(
            (thresholds.full, thresholds.starved, thresholds.batches),
            (1, 1, 4)
        );
        assert_eq!(thresholds.state, None);
        let states = [0.01, 0.011, 0.05, 0.051].map(QueueState::of);
        let [full, normal, starved] = [QueueState::Full, QueueState::Normal, QueueState::Starved];
        assert_eq!(states, [full, normal, normal, starved]);
    }

    #[test]
    fn each_wait_is_in_one_bin() {
        let queue = queue(&[0.0, 0.1, 0.5, 1.0, 999.0, 1000.0, 1e9]);
        let bins: Vec<u64> = queue.waits.iter().map(|bin| bin.batches).collect();
        assert_eq!(bins, [1, 2, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!(queue.waits[8].below_ms, None);
    }
}
