//! The reader thread: packs, ahead of the computation.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use crate::EngineError;
use crate::part::{Part, SavedRows};
use crate::plan::{Job, Plan};
use crate::run_folder::remove;

/// A pack, and what an earlier run computed of it.
pub(crate) struct Item {
    pub(crate) job: Job,
    pub(crate) saved: Option<SavedRows>,
}

/// Sends every pack of `plan` from the position `first` on until the other side hangs up or a pack is unreadable. `parts` rise and
/// are apart.
pub(crate) fn read(
    plan: &Plan,
    first: u64,
    parts: Vec<Part>,
    queue: &Sender<Result<Item, EngineError>>,
) {
    if let Err(error) = send_all(plan, first, parts, queue) {
        // Nobody is left to hear of it where the other side has hung up.
        let _ = queue.send(Err(error));
    }
}

fn send_all(
    plan: &Plan,
    first: u64,
    parts: Vec<Part>,
    queue: &Sender<Result<Item, EngineError>>,
) -> Result<(), EngineError> {
    let mut jobs = plan.jobs_where(|pack| pack >= first);
    let mut parts = parts.into_iter().peekable();
    while let Some(job) = jobs.next().transpose()? {
        let Some(part) = parts.next_if(|part| part.batches.start == job.index) else {
            if queue.send(Ok(Item { job, saved: None })).is_err() {
                return Ok(());
            }
            continue;
        };
        let more = (part.batches.end - part.batches.start).saturating_sub(1) as usize;
        let mut group = vec![job];
        for job in jobs.by_ref().take(more) {
            group.push(job?);
        }
        let saved = match part.read(&group) {
            Ok(saved) => saved.into_iter().map(Some).collect(),
            Err(error) => {
                tracing::warn!("{error}; its batches are computed again");
                remove(&part.path)?;
                group.iter().map(|_job| None).collect::<Vec<_>>()
            }
        };
        for (job, saved) in group.into_iter().zip(saved) {
            if queue.send(Ok(Item { job, saved })).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// An item with how long it took to come, and how many more lay ready when it came.
pub(crate) struct Received {
    pub(crate) item: Item,
    pub(crate) wait: Duration,
    pub(crate) queue_depth: u64,
}

/// The next item, or `None` after the last.
pub(crate) fn receive(
    queue: &Receiver<Result<Item, EngineError>>,
) -> Result<Option<Received>, EngineError> {
    let asked = Instant::now();
    received(queue.recv().ok(), asked, queue)
}

/// The next item if it lies ready.
pub(crate) fn receive_ready(
    queue: &Receiver<Result<Item, EngineError>>,
) -> Result<Option<Received>, EngineError> {
    received(queue.try_recv().ok(), Instant::now(), queue)
}

fn received(
    item: Option<Result<Item, EngineError>>,
    asked: Instant,
    queue: &Receiver<Result<Item, EngineError>>,
) -> Result<Option<Received>, EngineError> {
    let Some(item) = item else {
        return Ok(None);
    };
    Ok(Some(Received {
        item: item?,
        wait: asked.elapsed(),
        queue_depth: queue.len() as u64,
    }))
}
