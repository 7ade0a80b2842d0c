//! When a worker takes too long for a batch: no clock, no process.

use std::time::{Duration, Instant};

/// No batch that takes less is slow.
const LEAST: Duration = Duration::from_mins(1);
/// How many times the longest batch so far one may take.
const TIMES: u32 = 10;

/// Knows since when each worker has been at a batch.
#[derive(Debug)]
pub(crate) struct SlowBatches {
    /// The longest that a batch took, once one was computed.
    longest: Option<Duration>,
    workers: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    began: Instant,
    /// Whether it was reported as slow.
    reported: bool,
}

impl SlowBatches {
    pub(crate) fn new(workers: usize, now: Instant) -> Self {
        let since = Timer {
            began: now,
            reported: false,
        };
        Self {
            longest: None,
            workers: vec![since; workers],
        }
    }

    /// A worker begins with a batch.
    pub(crate) fn begin(&mut self, worker: usize, now: Instant) {
        self.workers[worker] = Timer {
            began: now,
            reported: false,
        };
    }

    /// A worker has computed a batch, and begins with the next if it has one.
    pub(crate) fn finish(&mut self, worker: usize, now: Instant) {
        let took = now - self.workers[worker].began;
        self.longest = self.longest.max(Some(took));
        self.begin(worker, now);
    }

    /// How long a worker that has a batch has been at it, if that is too long and was not reported before.
    pub(crate) fn overdue(&mut self, worker: usize, now: Instant) -> Option<Duration> {
        // While none is computed yet, it is not known how long they take.
        let most = LEAST.max(self.longest.unwrap_or(LEAST) * TIMES);
        let since = &mut self.workers[worker];
        let taken = now - since.began;
        if since.reported || taken <= most {
            return None;
        }
        since.reported = true;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_ten_times_the_longest_is_said_once() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut slow = SlowBatches::new(2, start);
        assert_eq!(slow.overdue(0, after(600)), None, "nothing to go by");
        slow.finish(1, after(20));
        assert_eq!(slow.overdue(0, after(200)), None);
        let seconds = Duration::from_secs;
        assert_eq!(slow.overdue(0, after(201)), Some(seconds(201)));
        assert_eq!(slow.overdue(0, after(400)), None, "it was said");
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
        assert_eq!(slow.overdue(0, now + LEAST), None);
        let over = LEAST + Duration::from_millis(1);
        assert_eq!(slow.overdue(0, now + over), Some(over));
    }
}
