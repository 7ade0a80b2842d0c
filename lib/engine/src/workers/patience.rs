//! How long workers may take before something is said: no clock, no process.

use std::time::{Duration, Instant};

/// What no pack takes long enough for.
const LEAST: Duration = Duration::from_mins(1);
/// How many times the longest pack so far one may take.
const TIMES: u32 = 10;

/// Knows since when each worker has been at a pack.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The longest that a pack took, once one was computed.
    longest: Option<Duration>,
    workers: Vec<Since>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    began: Instant,
    /// Whether it was said that it takes long.
    said: bool,
}

impl Patience {
    pub(crate) fn new(workers: usize, now: Instant) -> Self {
        let since = Since {
            began: now,
            said: false,
        };
        Self {
            longest: None,
            workers: vec![since; workers],
        }
    }

    /// A worker begins with a pack.
    pub(crate) fn begins(&mut self, worker: usize, now: Instant) {
        self.workers[worker] = Since {
            began: now,
            said: false,
        };
    }

    /// A worker has computed a pack, and begins with the next if it has one.
    pub(crate) fn computed(&mut self, worker: usize, now: Instant) {
        let took = now - self.workers[worker].began;
        self.longest = self.longest.max(Some(took));
        self.begins(worker, now);
    }

    /// How long a worker that has a pack has been at it, if that is too long and was not said before.
    pub(crate) fn overdue(&mut self, worker: usize, now: Instant) -> Option<Duration> {
        // While none is computed yet, it is not known how long they take.
        let most = LEAST.max(self.longest.unwrap_or(LEAST) * TIMES);
        let since = &mut self.workers[worker];
        let taken = now - since.began;
        if since.said || taken <= most {
            return None;
        }
        since.said = true;
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
        let mut patience = Patience::new(2, start);
        assert_eq!(patience.overdue(0, after(600)), None, "nothing to go by");
        patience.computed(1, after(20));
        assert_eq!(patience.overdue(0, after(200)), None);
        let seconds = Duration::from_secs;
        assert_eq!(patience.overdue(0, after(201)), Some(seconds(201)));
        assert_eq!(patience.overdue(0, after(400)), None, "it was said");
        assert_eq!(patience.overdue(1, after(220)), None, "it began at 20");
        patience.begins(0, after(500));
        assert_eq!(patience.overdue(0, after(700)), None);
        assert_eq!(patience.overdue(0, after(701)), Some(seconds(201)));
    }

    #[test]
    fn a_minute_is_never_too_long() {
        let start = Instant::now();
        let mut patience = Patience::new(1, start);
        let now = start + Duration::from_millis(10);
        patience.computed(0, now);
        assert_eq!(patience.overdue(0, now + LEAST), None);
        let over = LEAST + Duration::from_millis(1);
        assert_eq!(patience.overdue(0, now + over), Some(over));
    }
}
