//! One attempt at a run: a process, from its start to its end or to where it was cut off.

use super::time_span::TimeSpan;
use plmkit_logs::event::{Event, RunDone, RunStarted};

/// One process of a run. A run that was interrupted and went on has several; elapsed time begins anew in each.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempt {
    pub(super) started: Option<RunStarted>,
    pub(super) done: Option<RunDone>,
    last_batch_s: Option<f64>,
    pub(super) span: TimeSpan,
}

impl Attempt {
    /// Adds an event of this process.
    pub(super) fn add(&mut self, event: &Event) {
        self.span.add(event);
        match event {
            Event::Run(started) => self.started = Some(started.clone()),
            Event::Batch(batch) => {
                let last_s = self.last_batch_s.unwrap_or_default();
                self.last_batch_s = batch
                    .elapsed_s
                    .map(|now_s| now_s.max(last_s))
                    .or(self.last_batch_s);
            }
            Event::Done(done) => self.done = Some(done.clone()),
            Event::Probe(_) | Event::Unknown => {}
        }
    }

    /// Seconds by a monotonic clock, to the end or to the last batch known.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let done = self.done.as_ref().map(|done| done.elapsed_s);
        done.or(self.last_batch_s)
    }

    /// Whether both computed in the same way on the same devices.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let devices = |attempt: &Self| {
            attempt.started.as_ref().map(|started| {
                let flops = (started.flops_per_token, started.flops_per_pair);
                (
                    started.device.clone(),
                    started.dtype.clone(),
                    started.gpu_uuids.clone(),
                    flops,
                )
            })
        };
        devices(self) == devices(other)
    }
}
