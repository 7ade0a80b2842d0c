//! The queue of batches before the device.

use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;
use plmkit_logs::thresholds::{QUEUE_FULL_BELOW_MS, QUEUE_STARVED_ABOVE_MS};

/// Upper edges of the wait histogram. A last bin takes all longer waits.
const EDGES_MS: [f64; 8] = [0.1, 1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// How well the queue fed the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Queue {
    /// The state of more than half of the batches; `None` if no batch has a wait.
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

/// The state of a queue, by its waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, IntoStaticStr, VariantNames)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueueState {
    /// The device found its next batch ready.
    Full,
    /// The device waited, but not long.
    Normal,
    /// The device waited long.
    Starved,
}

/// A bin of the wait histogram.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

    pub(super) fn finish(&self) -> Queue {
        let batches: u64 = self.bins.iter().sum();
        // By the majority, not by the mean: the first batch always waits for the first read.
        let state = match batches {
            0 => None,
            _ if 2 * self.full > batches => Some(QueueState::Full),
            _ if 2 * self.starved > batches => Some(QueueState::Starved),
            _ => Some(QueueState::Normal),
        };
        let edges = EDGES_MS.into_iter().map(Some).chain([None]);
        Queue {
            state,
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
        count.finish()
    }

    #[test]
    fn the_state_is_that_of_the_majority_and_thresholds_are_normal() {
        let thresholds = queue(&[0.999, 1.0, 50.0, 50.001]);
        assert_eq!(
            (thresholds.full, thresholds.starved, thresholds.batches),
            (1, 1, 4)
        );
        assert_eq!(thresholds.state, Some(QueueState::Normal));
        assert_eq!(queue(&[9000.0, 0.1, 0.1]).state, Some(QueueState::Full));
        assert_eq!(queue(&[0.1, 60.0, 70.0]).state, Some(QueueState::Starved));
        assert_eq!(queue(&[]).state, None);
    }

    #[test]
    fn each_wait_is_in_one_bin() {
        let queue = queue(&[0.0, 0.1, 0.5, 1.0, 999.0, 1000.0, 1e9]);
        let bins: Vec<u64> = queue.waits.iter().map(|bin| bin.batches).collect();
        assert_eq!(bins, [1, 2, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!(queue.waits[8].below_ms, None);
    }
}
