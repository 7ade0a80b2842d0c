//! The last batches of a run.

use std::collections::VecDeque;

use super::Recent;
use plmkit_logs::event::{BatchDone, Totals};
use plmkit_logs::{QueueState, Stretch};

/// Time that counts as recent: long enough for a steady rate of batches that take seconds.
const SPAN_S: f64 = 60.0;

/// The last batches of a slow run count as recent, however old they are.
const MIN_BATCHES: usize = 8;

/// Bounds the memory of a fast run.
const MAX_BATCHES: usize = 4096;

/// The last batches of a run, by its own clock: elapsed seconds, the totals then, and the batches that were ready.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentBatches(VecDeque<(f64, Totals, Option<u64>)>);

impl RecentBatches {
    /// Adds a batch that has an elapsed time, and the totals after it. One that is older than the newest is already known: its log
    /// was read again.
    pub(super) fn add(&mut self, batch: &BatchDone, total: &Totals) {
        let Some(now_s) = batch.elapsed_s else { return };
        let newest = self.0.back();
        if newest.is_some_and(|(_, newest, _)| newest.batches >= total.batches) {
            return;
        }
        self.0.push_back((now_s, total.clone(), batch.queue_depth));
        let is_old = |(at_s, ..): &(f64, _, _)| *at_s < now_s - SPAN_S;
        while self.0.len() > MAX_BATCHES
            || self.0.len() > MIN_BATCHES && self.0.front().is_some_and(is_old)
        {
            self.0.pop_front();
        }
    }

    /// Computes the figures of a run. The start of the first batch is unknown: rates are taken from its end on.
    pub(super) fn recent(&self) -> Recent {
        let ends = self.0.front().zip(self.0.back());
        let Some(((from_s, before, _), (to_s, after, queue_depth))) = ends else {
            return Recent::default();
        };
        let stretch = Stretch::between((before, *from_s), (after, *to_s));
        let wait_share = stretch.wait_share();
        Recent {
            tokens_per_s: stretch.tokens_per_s(),
            wait_share,
            idle_share: stretch.idle_share(),
            queue: wait_share.map(QueueState::of),
            queue_depth: *queue_depth,
        }
    }

    /// Returns the longest time between two batches, or that to the first if there is no other.
    pub(super) fn longest_gap_s(&self) -> Option<f64> {
        let times = || self.0.iter().map(|(at_s, ..)| *at_s);
        let gaps = times().skip(1).zip(times());
        let longest = gaps.map(|(next, before)| next - before).reduce(f64::max);
        longest.or_else(|| times().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent_batches(batches: impl IntoIterator<Item = (u64, f64, u64, f64)>) -> RecentBatches {
        let (mut recent, mut total) = (RecentBatches::default(), Totals::default());
        for (batch, elapsed_s, tokens, wait_ms) in batches {
            let batch = BatchDone {
                batch,
                elapsed_s: Some(elapsed_s),
                tokens,
                wait_ms: Some(wait_ms),
                compute_ms: Some(4.0 * wait_ms),
                queue_depth: Some(batch),
                ..BatchDone::default()
            };
            total = total + Totals::from(&batch);
            recent.add(&batch, &total);
        }
        recent
    }

    #[test]
    fn rates_and_waits_are_those_of_the_last_minute_or_of_eight_batches() {
        let slow = (0..100).map(|n| (n, n as f64, 10, 100.0));
        let fast = (100..200).map(|n| (n, n as f64, 1000, 0.125));
        let expected = Recent {
            tokens_per_s: Some(1000.0),
            wait_share: Some(7.5 / 1000.0 / 60.0),
            idle_share: Some(1.0 - 30.0 / 1000.0 / 60.0),
            queue: Some(QueueState::Full),
            queue_depth: Some(199),
        };
        assert_eq!(recent_batches(slow.chain(fast)).recent(), expected);
        let slow = recent_batches((0..20).map(|n| (n, n as f64 * 100.0, 700, 6000.0))).recent();
        let starved = Some(QueueState::Starved);
        assert_eq!((slow.tokens_per_s, slow.queue), (Some(7.0), starved));
        let one = recent_batches([(0, 1.0, 10, 5.0)]).recent();
        assert_eq!(one.tokens_per_s, None);
        assert_eq!(recent_batches([]).recent(), Recent::default());
    }

    #[test]
    fn memory_is_bounded() {
        let batches = (0..10_000).map(|n| (n, n as f64 * 1e-3, 10, 0.1));
        assert_eq!(recent_batches(batches).0.len(), MAX_BATCHES);
    }
}
