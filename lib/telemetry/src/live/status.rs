//! The state and the progress of a run.

use strum::{IntoStaticStr, VariantNames};

use crate::report::{QueueState, RunSummary};
use plmkit_logs::Timestamp;

/// The state and the progress of a run. An unknown value is `None`, never 0.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStatus {
    /// The summary of all its events so far.
    pub summary: RunSummary,
    /// Its state.
    pub state: RunState,
    /// Its progress.
    pub progress: LiveProgress,
    /// Figures of its last batches.
    pub recent: Recent,
    /// The wall-clock time of its last event.
    pub last_event: Timestamp,
    /// Seconds since the last event.
    pub silence_s: f64,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum RunState {
    /// It is at work.
    Running,
    /// It has no end, and there was no event for long: it hangs or was killed.
    Silent,
    /// It has no end, and its process is gone: it was killed.
    Gone,
    /// An error ended it.
    Failed,
    /// A signal stopped it.
    Stopped,
    /// Everything was computed and written.
    Done,
}

/// The progress of a run. Batches that an earlier, interrupted run saved count as done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveProgress {
    /// Batches done, including saved ones.
    pub batches: u64,
    /// Batches to do in all.
    pub batches_total: Option<u64>,
    /// Sequences (rows) that this run will compute, including those done.
    pub sequences_total: Option<u64>,
    /// Tokens that this run will compute, including those done.
    pub tokens_total: Option<u64>,
    /// Share that is done, 0 to 1: of all batches, those of this run by their tokens if these are known.
    pub share: Option<f64>,
    /// Seconds left at the recent rate, from now. Known while the run is at work.
    pub eta_s: Option<f64>,
}

/// Figures of the last batches of a run: those of its last minute, at least eight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Sequences (rows) a second.
    pub sequences_per_s: Option<f64>,
    /// Residues a second.
    pub residues_per_s: Option<f64>,
    /// Mean time that the device waited for a batch.
    pub mean_wait_ms: Option<f64>,
    /// Share of the time in which the device waited for batches, the mean over the workers.
    pub wait_share: Option<f64>,
    /// The state of the queue.
    pub queue: Option<QueueState>,
    /// Batches that were ready when the last one was taken.
    pub queue_depth: Option<u64>,
}
