//! A run from a start to its end or to where it was cut off.

use super::clock::Clock;
use crate::Timestamp;
use crate::event::{RunDone, RunStarted};

/// One process of a run. A run that was killed and went on under its name has several; elapsed time begins anew in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) started: Option<RunStarted>,
    pub(super) done: Option<RunDone>,
    last_batch_s: Option<f64>,
    clock: Clock,
}

impl Session {
    pub(super) fn start(&mut self, started: RunStarted) {
        self.see(started.time, Some(0.0));
        self.started = Some(started);
    }

    pub(super) fn end(&mut self, done: RunDone) {
        self.see(done.time, Some(done.elapsed_s));
        self.done = Some(done);
    }

    /// A batch is through.
    pub(super) fn batch(&mut self, time: Option<Timestamp>, elapsed_s: Option<f64>) {
        self.see(time, elapsed_s);
        if let Some(elapsed_s) = elapsed_s {
            let last = self
                .last_batch_s
                .map_or(elapsed_s, |last| last.max(elapsed_s));
            self.last_batch_s = Some(last);
        }
    }

    /// Seconds by a monotonic clock, to the end or to the last batch known.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let done = self.done.as_ref().map(|done| done.elapsed_s);
        done.or(self.last_batch_s)
    }

    /// When it was at work, by the clock on the wall.
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether both computed in the same way on the same devices.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let kind = |session: &Self| {
            session.started.as_ref().map(|started| {
                let flops = (started.flops_per_token, started.flops_per_pair);
                let how = (started.device.clone(), started.dtype.clone());
                (how, started.gpu_uuids.clone(), flops)
            })
        };
        kind(self) == kind(other)
    }

    fn see(&mut self, time: Option<Timestamp>, elapsed_s: Option<f64>) {
        if let Some(time) = time {
            self.clock.add(time, elapsed_s);
        }
    }
}
