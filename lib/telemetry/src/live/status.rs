//! Where a run stands.

use serde::Serialize;

use crate::report::{QueueState, RunSummary};
use plmkit_logs::Timestamp;

/// Where a run stands. What is not known is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// All its events so far.
    pub summary: RunSummary,
    /// Whether it is at work.
    pub state: RunState,
    /// How far it has come.
    pub progress: Progress,
    /// Its last batches.
    pub recent: Recent,
    /// When something was heard of it last, by the clock on the wall.
    pub last_event: Timestamp,
    /// Seconds since then.
    pub silence_s: f64,
}

/// Whether a run is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is at work.
    Running,
    /// It has no end and nothing was heard of it for long: it hangs or was killed.
    Silent,
    /// An error ended it.
    Failed,
    /// It was asked to stop, and did.
    Stopped,
    /// Everything was computed and written.
    Done,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Running,
        Self::Silent,
        Self::Failed,
        Self::Stopped,
        Self::Done,
    ];

    /// Its name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Silent => "silent",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Done => "done",
        }
    }
}

/// How far a run has come. What an earlier, interrupted run has saved counts as done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Batches done, by this run and the one before.
    pub batches: u64,
    /// Batches to do in all.
    pub batches_total: Option<u64>,
    /// Sequences (rows) that this run will compute; those of its summary are done.
    pub sequences_total: Option<u64>,
    /// Tokens that this run will compute; those of its summary are done.
    pub tokens_total: Option<u64>,
    /// Share that is done, 0 to 1: of this run's tokens, or of all batches where tokens are not known.
    pub share: Option<f64>,
    /// Seconds that are left at the recent rate: known while it is at work.
    pub eta_s: Option<f64>,
}

/// What the last batches of a run say: those of its last minute, at least eight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recent {
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Residues a second.
    pub residues_per_s: Option<f64>,
    /// Mean time that the device waited for a batch.
    pub mean_wait_ms: Option<f64>,
    /// The state of the queue.
    pub queue: Option<QueueState>,
    /// Batches that lay ready when the last one was taken.
    pub queue_depth: Option<u64>,
}
