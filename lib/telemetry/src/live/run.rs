//! One run while it works.

use std::slice;
use std::time::Duration;

use super::recent_batches::RecentBatches;
use super::{LiveProgress, Recent, RunState, RunStatus};
use crate::report::{Attempt, RunSummary};
use plmkit_logs::Timestamp;
use plmkit_logs::event::{Event, RunStarted};

/// A run, as far as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveRun {
    attempt: Attempt,
    pub(super) has_ended: bool,
    recent_batches: RecentBatches,
    last_event: Timestamp,
}

impl LiveRun {
    /// Starts with the name of a run and of its log.
    pub(super) fn new(run: &str, log: &str) -> Self {
        Self {
            attempt: Attempt::new(run, log),
            ..Self::default()
        }
    }

    /// Adds an event of this run, which happened at `time`.
    pub(super) fn add(&mut self, event: &Event, time: Timestamp) {
        self.last_event = self.last_event.max(time);
        self.attempt.add(event);
        match event {
            Event::Run(_) => self.has_ended = false,
            Event::Batch(batch) => self.recent_batches.add(batch, &self.attempt.total),
            Event::Done(_) => {
                self.has_ended = true;
                self.recent_batches = RecentBatches::default();
            }
            Event::Probe(_) | Event::Unknown => {}
        }
    }

    /// Whether an event of its name is of another run.
    pub(super) fn is_other(&self, event: &Event) -> bool {
        self.attempt.is_other(event)
    }

    /// Whether its last event is at most `keep` old. After a clock went back, no event is old.
    pub(super) fn is_recent(&self, now: Timestamp, keep: Duration) -> bool {
        let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        now.unix_ms() - self.last_event.unix_ms() <= keep_ms
    }

    /// Returns the status. `is_gone` tells whether the process of a run is gone.
    pub(super) fn status(
        &self,
        now: Timestamp,
        is_gone: impl Fn(&RunStarted) -> bool,
    ) -> RunStatus {
        let summary = RunSummary::new(slice::from_ref(&self.attempt), None);
        // After a clock went back, the silence would be negative.
        let silence_s = (now.unix_ms() - self.last_event.unix_ms()).max(0) as f64 / 1000.0;
        let gap_s = self.recent_batches.longest_gap_s();
        let is_gone = || is_gone(&summary.setup);
        let state = RunState::new(summary.outcome, silence_s, gap_s, is_gone);
        let recent = self.recent_batches.recent();
        RunStatus {
            progress: progress(&summary, &recent, state, silence_s),
            state,
            recent,
            last_event: self.last_event,
            silence_s,
            summary,
        }
    }
}

fn progress(
    summary: &RunSummary,
    recent: &Recent,
    state: RunState,
    silence_s: f64,
) -> LiveProgress {
    let saved = summary.setup.batches_saved.unwrap_or(0);
    let batches = saved + summary.total.batches;
    let batches_total = summary.setup.batches_total.map(|total| saved + total);
    let tokens_total = summary.setup.tokens_total;
    let share = |done: u64, total: Option<u64>| {
        let total = total.filter(|&total| total > 0)?;
        Some((done as f64 / total as f64).min(1.0))
    };
    // The tokens are those of the batches that were not saved.
    let saved_share = share(saved, batches_total).unwrap_or(0.0);
    let share_of_tokens = share(summary.total.tokens, tokens_total)
        .map(|share| saved_share + (1.0 - saved_share) * share);
    let rate = recent.tokens_per_s.or(summary.throughput.tokens_per_s);
    let rate = rate.filter(|&rate| rate > 0.0 && state == RunState::Running);
    let left = tokens_total.map(|total| total.saturating_sub(summary.total.tokens));
    let left_s = left.zip(rate).map(|(left, rate)| left as f64 / rate);
    LiveProgress {
        batches,
        batches_total,
        share: share_of_tokens.or(share(batches, batches_total)),
        // Work went on since the last event.
        eta_s: left_s.map(|left_s| (left_s - silence_s).max(0.0)),
    }
}
