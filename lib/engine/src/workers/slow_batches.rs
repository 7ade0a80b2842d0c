//! Detecting workers that take too long for a batch. Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// No batch that takes less is slow.
const MIN_SLOW: Duration = Duration::from_mins(1);
/// A batch is slow if it takes more than this many times the longest one so far.
const SLOW_FACTOR: u32 = 10;

/// Knows when each worker began its current batch.
#[derive(Debug)]
pub(crate) struct SlowBatches {
    /// The longest computation of a batch, if any has finished.
    longest: Option<Duration>,
    /// For each worker, when it began its batch, and whether the batch was reported as slow.
    workers: Vec<(Instant, bool)>,
}

impl SlowBatches {
    pub(crate) fn new(workers: usize, now: Instant) -> Self {
        Self {
            longest: None,
            workers: vec![(now, false); workers],
        }
    }

    /// Notes that a worker begins a batch.
    pub(crate) fn begin(&mut self, worker: usize, now: Instant) {
        self.workers[worker] = (now, false);
    }

    /// Notes that a worker has finished a batch, and begins the next one if it has one.
    pub(crate) fn finish(&mut self, worker: usize, now: Instant) {
        let taken = now - self.workers[worker].0;
        self.longest = self.longest.max(Some(taken));
        self.begin(worker, now);
    }

    /// Returns how long a busy worker has been at its batch, if that is too long and was not reported before.
    pub(crate) fn overdue(&mut self, worker: usize, now: Instant) -> Option<Duration> {
        // Until a batch has finished, ten minutes are the limit.
        let longest = self.longest.unwrap_or(MIN_SLOW);
        let (began, reported) = &mut self.workers[worker];
        let taken = now - *began;
        if *reported || taken <= MIN_SLOW.max(longest * SLOW_FACTOR) {
            return None;
        }
        *reported = true;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_ten_times_the_longest_is_reported_once() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let after = |count| start + seconds(count);
        let mut slow = SlowBatches::new(2, start);
        assert_eq!(slow.overdue(0, after(600)), None, "no measure yet");
        slow.finish(1, after(20));
        assert_eq!(slow.overdue(0, after(200)), None);
        assert_eq!(slow.overdue(0, after(201)), Some(seconds(201)));
        assert_eq!(slow.overdue(0, after(400)), None, "already reported");
        assert_eq!(slow.overdue(1, after(220)), None, "it began at 20");
        slow.begin(0, after(500));
        assert_eq!(slow.overdue(0, after(700)), None);
        assert_eq!(slow.overdue(0, after(701)), Some(seconds(201)));
    }

    #[test]
    fn a_minute_is_never_too_long() {
        let start = Instant::now();
        let mut slow = SlowBatches::new(1, start);
        let now = start + Duration::from_millis(10);
        slow.finish(0, now);
        assert_eq!(slow.overdue(0, now + MIN_SLOW), None);
        let over = MIN_SLOW + Duration::from_millis(1);
        assert_eq!(slow.overdue(0, now + over), Some(over));
    }
}
