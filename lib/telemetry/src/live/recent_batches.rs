//! The last batches of a run.

use std::collections::VecDeque;

use super::Recent;
use crate::report::Runs;
use plmkit_logs::event::{BatchDone, Event};

/// What counts as recent: long enough that batches of seconds make a steady rate.
const SPAN_S: f64 = 60.0;

/// However slow a run is, its last batches are recent.
const FEWEST: usize = 8;

/// However fast it is, memory stays small.
const MOST: usize = 4096;

/// The last batches of a run, by its own clock.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentBatches {
    batches: VecDeque<BatchDone>,
}

impl RecentBatches {
    /// Takes in a batch that says when it was. One that is older than the newest is there already: a log was read again.
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let Some(now_s) = batch.elapsed_s else { return };
        if let Some(newest) = self.batches.back()
            && newest.elapsed_s >= Some(now_s)
            && (newest.elapsed_s > Some(now_s) || newest.batch == batch.batch)
        {
            return;
        }
        self.batches.push_back(batch.clone());
        while self.batches.len() > MOST
            || self.batches.len() > FEWEST
                && self
                    .batches
                    .front()
                    .is_some_and(|oldest| oldest.elapsed_s < Some(now_s - SPAN_S))
        {
            self.batches.pop_front();
        }
    }

    /// What the batches say; rates are those between the first of them and the last.
    pub(super) fn recent(&self) -> Recent {
        let mut recent = Recent {
            queue_depth: self.batches.back().and_then(|newest| newest.queue_depth),
            ..Recent::default()
        };
        let mut runs = Runs::default();
        for batch in &self.batches {
            runs.add(&Event::Batch(batch.clone()));
        }
        if let Some(run) = runs.finish(false).runs.pop() {
            recent.queue = run.queue.state;
            recent.mean_wait_ms = run.stages.wait.map(|wait| wait.mean_ms);
        }
        let ends = self.batches.front().zip(self.batches.back());
        let span_s = ends.and_then(|(first, last)| Some(last.elapsed_s? - first.elapsed_s?));
        if let Some(span_s) = span_s.filter(|&span_s| span_s > 0.0) {
            // When the first of them began is not known.
            let after_first = || self.batches.iter().skip(1);
            let per_second = |count: u64| Some(count as f64 / span_s);
            recent.tokens_per_s = per_second(after_first().map(|batch| batch.tokens).sum());
            recent.residues_per_s = per_second(after_first().map(|batch| batch.residues).sum());
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::QueueState;

    fn batch(batch: u64, elapsed_s: f64, tokens: u64, wait_ms: f64) -> BatchDone {
        BatchDone {
            batch,
            elapsed_s: Some(elapsed_s),
            tokens,
            residues: tokens / 2,
            wait_ms: Some(wait_ms),
            queue_depth: Some(batch),
            ..BatchDone::default()
        }
    }

    fn recent_batches(batches: impl IntoIterator<Item = BatchDone>) -> RecentBatches {
        let mut recent = RecentBatches::default();
        for batch in batches {
            recent.add(&batch);
        }
        recent
    }

    #[test]
    fn rates_and_waits_are_those_of_the_last_minute() {
        let slow = (0..100).map(|n| batch(n, n as f64, 10, 100.0));
        let fast = (100..200).map(|n| batch(n, n as f64, 1000, 0.1));
        let recent = recent_batches(slow.chain(fast)).recent();
        assert_eq!(
            (recent.tokens_per_s, recent.residues_per_s),
            (Some(1000.0), Some(500.0))
        );
        assert_eq!(
            (recent.queue, recent.mean_wait_ms),
            (Some(QueueState::Full), Some(0.1))
        );
        assert_eq!(recent.queue_depth, Some(199));
    }

    #[test]
    fn of_a_slow_run_the_last_batches_count_however_old() {
        let slow = (0..20).map(|n| batch(n, n as f64 * 100.0, 700, 60.0));
        let recent = recent_batches(slow).recent();
        assert_eq!(
            (recent.tokens_per_s, recent.queue),
            (Some(7.0), Some(QueueState::Starved))
        );
    }

    #[test]
    fn one_batch_has_no_rate_and_no_batch_says_nothing() {
        assert_eq!(recent_batches([]).recent(), Recent::default());
        let recent = recent_batches([batch(0, 1.0, 10, 5.0)]).recent();
        assert_eq!(
            (recent.tokens_per_s, recent.mean_wait_ms),
            (None, Some(5.0))
        );
    }

    #[test]
    fn a_log_that_is_read_again_changes_nothing_and_a_fast_run_takes_little_memory() {
        let batches = || (0..10_000).map(|n| batch(n, n as f64 * 1e-3, 10, 0.1));
        let (once, twice) = (
            recent_batches(batches()),
            recent_batches(batches().chain(batches())),
        );
        assert_eq!((once.batches.len(), twice.batches.len()), (MOST, MOST));
        assert_eq!(twice.recent(), once.recent());
    }
}
