//! The reader thread: packs, ahead of the computation.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::EngineError;
use crate::plan::{Job, Plan};

/// Sends every pack of `plan` until the other side hangs up or a pack is unreadable.
pub(crate) fn read<'a>(plan: &'a Plan, queue: &Sender<Result<Job<'a>, EngineError>>) {
    for job in plan.jobs() {
        let failed = job.is_err();
        if queue.send(job).is_err() || failed {
            return;
        }
    }
}

/// A pack with how long it took to come, and how many more lay ready when it came.
pub(crate) struct Received<'a> {
    pub(crate) job: Job<'a>,
    pub(crate) wait: Duration,
    pub(crate) queue_depth: u64,
}

/// The next pack, or `None` after the last.
pub(crate) fn receive<'a>(
    queue: &Receiver<Result<Job<'a>, EngineError>>,
) -> Result<Option<Received<'a>>, EngineError> {
    let asked = Instant::now();
    let Ok(job) = queue.recv() else {
        return Ok(None);
    };
    Ok(Some(Received {
        job: job?,
        wait: asked.elapsed(),
        queue_depth: queue.len() as u64,
    }))
}
