//! A part of an attempt.

use crate::event::Totals;

/// The part of an attempt between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stretch {
    /// Seconds.
    pub elapsed_s: f64,
    /// Batches.
    pub batches: u64,
    pub tokens: u64,
    /// How full they were, the last of each file left out, 0 to 1.
    pub mean_fill: Option<f64>,
    /// Milliseconds of waits and of computing, if they are known.
    wait_ms: Option<f64>,
    compute_ms: Option<f64>,
}

impl Stretch {
    /// Returns the part between two moments: the totals then, and the elapsed seconds.
    pub fn between(start: (&Totals, f64), end: (&Totals, f64)) -> Self {
        let ((before, from_s), (after, to_s)) = (start, end);
        let stage_ms = |name: &str| {
            let ms = after.stages.get(name)?.ms;
            let before_ms = before.stages.get(name).map(|stage| stage.ms);
            let is_known = before.batches == 0 || before_ms.is_some();
            is_known.then(|| ms - before_ms.unwrap_or_default())
        };
        let room = after.packing.room.saturating_sub(before.packing.room);
        let filled = after.packing.tokens.saturating_sub(before.packing.tokens);
        Self {
            elapsed_s: to_s - from_s,
            batches: after.batches.saturating_sub(before.batches),
            tokens: after.tokens.saturating_sub(before.tokens),
            mean_fill: (room > 0).then(|| filled as f64 / room as f64),
            wait_ms: stage_ms("wait"),
            compute_ms: stage_ms("compute"),
        }
    }

    /// Returns the tokens a second; `None` without time.
    pub fn tokens_per_s(&self) -> Option<f64> {
        (self.elapsed_s > 0.0).then(|| self.tokens as f64 / self.elapsed_s)
    }

    /// Returns the share of the time in which the device waited for batches. `None` without time, and if a wait is unknown.
    pub fn wait_share(&self) -> Option<f64> {
        self.share(self.wait_ms)
    }

    /// Returns the share of the time in which the device did not compute. `None` without time, and if the time of a batch is unknown.
    pub fn idle_share(&self) -> Option<f64> {
        Some(1.0 - self.share(self.compute_ms)?)
    }

    fn share(&self, time_ms: Option<f64>) -> Option<f64> {
        let known = time_ms.filter(|_| self.elapsed_s > 0.0)?;
        // The first time may have begun before the stretch.
        Some((known / 1000.0 / self.elapsed_s).clamp(0.0, 1.0))
    }
}
