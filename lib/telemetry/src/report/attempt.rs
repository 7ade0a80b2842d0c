//! One attempt at a run: a process, from its start to its end or interruption.

use super::time_span::TimeSpan;
use plmkit_logs::event::{Event, RunDone, RunStarted};

/// One process of a run. An interrupted run that was resumed has several. Elapsed time starts at 0 in each.
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
                let times = [self.last_batch_s, batch.elapsed_s];
                self.last_batch_s = times.into_iter().flatten().reduce(f64::max);
            }
            Event::Done(done) => self.done = Some(done.clone()),
            Event::Probe(_) | Event::Unknown => {}
        }
    }

    /// Returns the seconds to the end, or to the last known batch, by a monotonic clock.
    pub(super) fn elapsed_s(&self) -> Option<f64> {
        let done = self.done.as_ref().map(|done| done.elapsed_s);
        done.or(self.last_batch_s)
    }

    /// Whether both attempts computed in the same way on the same devices.
    pub(super) fn has_setup_of(&self, other: &Self) -> bool {
        let setup = |attempt: &Self| {
            let run = attempt.started.clone()?;
            let flops = (run.flops_per_token, run.flops_per_pair);
            Some((run.device, run.dtype, run.gpu_uuids, flops))
        };
        setup(self) == setup(other)
    }
}
