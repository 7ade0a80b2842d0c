//! The state and the progress of a run.

use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use crate::report::RunSummary;
use plmkit_logs::event::Outcome;
use plmkit_logs::{GpuSample, QueueState, Tier, Timestamp};

/// A run without events for longer than this is silent, unless its batches take as long.
const SILENT_AFTER_S: f64 = 30.0;

/// The limit before the first batch, while the model is loaded.
const SILENT_START_AFTER_S: f64 = 600.0;

/// The last event of a process may come a little after its end.
const GONE_AFTER_S: f64 = 2.0;

/// A batch may take this many times as long as the longest of the last ones.
const MAX_SLOWDOWN: f64 = 5.0;

/// The state and the progress of a run. An unknown value is `None`, never 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// The summary of all its events so far.
    pub summary: RunSummary,
    pub state: RunState,
    pub progress: LiveProgress,
    /// Figures of its last batches.
    pub recent: Recent,
    /// The wall-clock time of its last event.
    pub last_event: Timestamp,
    /// Seconds since the last event.
    pub silence_s: f64,
}

impl RunStatus {
    /// Returns the recent share of the time in which its devices did not compute, or that of the entire run.
    pub fn idle(&self) -> Option<f64> {
        self.recent.idle_share.or(self.summary.idle_share)
    }

    /// Returns the tier of [`idle`](Self::idle).
    pub fn idle_tier(&self) -> Option<Tier> {
        Tier::of_idle(self.idle()?, self.summary.elapsed_s?)
    }

    /// Returns the tier of a GPU that it should keep busy, by the GPU's utilization. `None` of other GPUs, and before the first
    /// batch.
    pub fn gpu_tier(&self, gpu: &GpuSample) -> Option<Tier> {
        let is_there = matches!(self.state, RunState::Running | RunState::Silent);
        let mut uuids = self.summary.setup.gpu_uuids.iter().flatten();
        let is_own = is_there && uuids.any(|uuid| gpu.uuid.as_ref() == Some(uuid));
        let is_judged = is_own && self.summary.total.batches > 0;
        let share = f64::from(gpu.gpu_util.filter(|_| is_judged)?) / 100.0;
        Some(Tier::of_utilization(share))
    }
}

/// The state of a run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantNames, Serialize,
)]
#[serde(rename_all = "snake_case")]
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

impl RunState {
    /// The state of a run whose last event was so long ago. `gap_s` is the longest time between its last batches.
    pub(super) fn new(
        outcome: Option<Outcome>,
        silence_s: f64,
        gap_s: Option<f64>,
        is_gone: impl Fn() -> bool,
    ) -> Self {
        let silent_after_s = gap_s.map_or(SILENT_START_AFTER_S, |gap_s| {
            SILENT_AFTER_S.max(MAX_SLOWDOWN * gap_s)
        });
        match outcome {
            Some(Outcome::Done) => Self::Done,
            Some(Outcome::Stopped) => Self::Stopped,
            Some(Outcome::Failed) => Self::Failed,
            None if silence_s > GONE_AFTER_S && is_gone() => Self::Gone,
            None if silence_s > silent_after_s => Self::Silent,
            None => Self::Running,
        }
    }
}

/// The progress of a run. Batches that an earlier, interrupted run saved count as done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveProgress {
    /// Batches done, including saved ones.
    pub batches: u64,
    /// Batches to do in all.
    pub batches_total: Option<u64>,
    /// Share that is done, 0 to 1: of all batches, those of this run by their tokens if these are known.
    pub share: Option<f64>,
    /// Seconds left at the recent rate, from now. Known while the run is at work.
    pub eta_s: Option<f64>,
}

/// Figures of the last batches of a run: those of its last minute, at least eight.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Recent {
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
    /// Share of the time in which the device waited for batches.
    pub wait_share: Option<f64>,
    /// Share of the time in which the device did not compute.
    pub idle_share: Option<f64>,
    /// The state of the queue.
    pub queue: Option<QueueState>,
    /// Batches that were ready when the last one was taken.
    pub queue_depth: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> RunStatus {
        RunStatus {
            summary: RunSummary::default(),
            state: RunState::Running,
            progress: LiveProgress::default(),
            recent: Recent::default(),
            last_event: Timestamp::default(),
            silence_s: 0.0,
        }
    }

    #[test]
    fn a_gpu_is_judged_by_the_run_that_should_keep_it_busy() {
        let gpu = |uuid: &str, gpu_util| GpuSample {
            uuid: Some(uuid.to_owned()),
            gpu_util,
            ..GpuSample::default()
        };
        let mut run = running();
        run.summary.setup.gpu_uuids = Some(vec!["GPU-0".to_owned(), "GPU-1".to_owned()]);
        run.summary.total.batches = 1;
        for (percent, tier) in [
            (2, Tier::Critical),
            (49, Tier::Critical),
            (50, Tier::Mild),
            (79, Tier::Mild),
            (80, Tier::None),
        ] {
            assert_eq!(run.gpu_tier(&gpu("GPU-1", Some(percent))), Some(tier));
        }
        assert_eq!(run.gpu_tier(&gpu("GPU-2", Some(2))), None);
        assert_eq!(run.gpu_tier(&gpu("GPU-1", None)), None);
        run.state = RunState::Done;
        assert_eq!(run.gpu_tier(&gpu("GPU-1", Some(2))), None);
        run.state = RunState::Silent;
        assert_eq!(run.gpu_tier(&gpu("GPU-1", Some(2))), Some(Tier::Critical));
        // It may still load the model.
        run.summary.total.batches = 0;
        assert_eq!(run.gpu_tier(&gpu("GPU-1", Some(2))), None);
    }

    #[test]
    fn the_tier_of_idle_time_is_that_of_the_last_minute() {
        for (share, expected) in [
            (0.05, Tier::None),
            (0.06, Tier::Mild),
            (0.21, Tier::Critical),
        ] {
            let mut run = running();
            run.recent.idle_share = Some(share);
            // As in a report, the start decides about a shorter run.
            run.summary.elapsed_s = Some(9.9);
            assert_eq!(run.idle_tier(), None);
            run.summary.elapsed_s = Some(10.0);
            assert_eq!(run.idle_tier(), Some(expected), "{share}");
        }
    }
}
