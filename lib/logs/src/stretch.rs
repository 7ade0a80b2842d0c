//! Consecutive batches of a run.

use crate::Mean;
use crate::event::BatchDone;

/// Consecutive batches of a run, in sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Elapsed seconds of the run at the beginning.
    pub start_s: f64,
    /// Elapsed seconds of the run at the end.
    pub end_s: f64,
    /// Batches.
    pub batches: u64,
    /// Their tokens.
    pub tokens: u64,
    /// How full they were, the last of each file left out.
    pub packing: Mean,
    wait_ms: Mean,
    compute_ms: Mean,
}

impl Stretch {
    /// Returns a stretch without batches that begins at some elapsed seconds of the run.
    pub fn starting_at(start_s: f64) -> Self {
        Self {
            start_s,
            end_s: start_s,
            ..Self::default()
        }
    }

    /// Adds the next batch.
    pub fn add(&mut self, batch: &BatchDone) {
        self.end_s = self.end_s.max(batch.elapsed_s.unwrap_or_default());
        self.batches += 1;
        self.tokens += batch.tokens;
        self.packing.extend(batch.fill().filter(|_| !batch.tail));
        self.wait_ms.extend(batch.wait_ms);
        self.compute_ms.extend(batch.compute_ms);
    }

    /// Returns the tokens a second; `None` without time.
    pub fn tokens_per_s(&self) -> Option<f64> {
        let seconds = self.end_s - self.start_s;
        (seconds > 0.0).then(|| self.tokens as f64 / seconds)
    }

    /// Returns the share of the time in which the device waited for batches. `None` without time, and if a wait is unknown.
    pub fn wait_share(&self) -> Option<f64> {
        self.share(&self.wait_ms)
    }

    /// Returns the share of the time in which the device did not compute. `None` without time, and if the time of a batch is unknown.
    pub fn idle_share(&self) -> Option<f64> {
        Some(1.0 - self.share(&self.compute_ms)?)
    }

    fn share(&self, times_ms: &Mean) -> Option<f64> {
        let device_s = self.end_s - self.start_s;
        let is_known = device_s > 0.0 && times_ms.count == self.batches.max(1);
        // The first time may have begun before the stretch.
        is_known.then(|| (times_ms.sum / 1000.0 / device_s).min(1.0))
    }
}
