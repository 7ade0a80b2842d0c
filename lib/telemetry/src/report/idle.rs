//! Time in which a device had no work.

use std::array;

use serde::Serialize;

use plmkit_logs::thresholds::{IDLE_CRITICAL_ABOVE, IDLE_JUDGED_FROM_S, IDLE_MILD_ABOVE};

use super::batches::Stages;
use super::{Tier, share};

/// The share of the elapsed time in which a device had no work, 0 to 1. Loading the model comes before and is no part of it.
/// A device has work while it computes a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Idle {
    /// All of it: the sum of the parts.
    pub share: f64,
    /// Waiting for batches, after the first one.
    pub waiting: f64,
    /// The start: until the worker had its first batch.
    pub starting: f64,
    /// Other gaps between batches: copies that nothing overlaps, preparation, delivery, the end.
    pub other: f64,
}

impl Idle {
    /// Returns the tier of a run of `elapsed_s`. The start decides about a run of a few seconds, so it has none.
    pub(super) fn tier(&self, elapsed_s: Option<f64>) -> Option<Tier> {
        elapsed_s.filter(|&elapsed_s| elapsed_s >= IDLE_JUDGED_FROM_S)?;
        Some(match self.share {
            share if share > IDLE_CRITICAL_ABOVE => Tier::Critical,
            share if share > IDLE_MILD_ABOVE => Tier::Mild,
            _ => Tier::None,
        })
    }

    /// Names the parts, the largest first.
    pub(super) fn parts(&self) -> String {
        let mut parts = [
            ("waiting for batches", self.waiting),
            ("the start", self.starting),
            ("other gaps", self.other),
        ];
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        // Parts are not compared with thresholds.
        parts
            .map(|(name, share)| format!("{name} {:.1} %", share * 100.0))
            .join(", ")
    }

    /// Returns what helps against the largest part, as far as the stages of the batches explain it.
    pub(super) fn advice(&self, stages: &Stages) -> &'static str {
        let share = |stage: &str| stages.get(stage)?.as_ref()?.share;
        let writing = share("write");
        let copying = share("h2d").zip(share("d2h"));
        let copying = copying.map(|(to, from)| to + from);
        let longest = [writing, copying].into_iter().flatten().reduce(f64::max);
        if self.waiting >= self.starting.max(self.other) {
            "raise --prefetch or read from a faster disk"
        } else if self.starting >= self.other {
            "give a run more work: larger shards, or several batches files"
        } else if longest.is_none() {
            "look at copying and writing, whose times are not known"
        } else if longest < Some(self.other / 2.0) {
            "neither copying nor writing took that long: pack larger batches, and look at other work on this machine"
        } else if writing >= copying {
            "writing took longest: a faster disk or fewer outputs"
        } else {
            "copying took longest: larger batches or fewer outputs"
        }
    }
}

/// Times of a worker, or of several, in seconds: elapsed, waiting, starting, other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct IdleTime([f64; 4]);

impl IdleTime {
    /// Divides the time in which a worker had no work. Copies, writes and waits overlap with computing, so that a part is at
    /// most what the parts before it leave.
    pub(super) fn new(elapsed_s: f64, busy_s: f64, starting_s: f64, waiting_s: f64) -> Self {
        let idle_s = (elapsed_s - busy_s).max(0.0);
        let starting_s = starting_s.clamp(0.0, idle_s);
        let waiting_s = waiting_s.clamp(0.0, idle_s - starting_s);
        let other_s = idle_s - starting_s - waiting_s;
        Self([elapsed_s, waiting_s, starting_s, other_s])
    }

    /// Adds the times of so many workers.
    pub(super) fn plus(self, other: Self, workers: u64) -> Self {
        let workers = workers as f64;
        Self(array::from_fn(|part| {
            self.0[part] + workers * other.0[part]
        }))
    }

    pub(super) fn elapsed_s(self) -> f64 {
        self.0[0]
    }

    pub(super) fn finish(self) -> Option<Idle> {
        let [elapsed_s, waiting_s, starting_s, other_s] = self.0;
        let of_all = |part_s| share(part_s, elapsed_s);
        Some(Idle {
            share: of_all(waiting_s + starting_s + other_s)?,
            waiting: of_all(waiting_s)?,
            starting: of_all(starting_s)?,
            other: of_all(other_s)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_exceed_the_time_without_work() {
        for (times, expected) in [
            ((100.0, 60.0, 4.0, 20.0), (0.4, 0.2, 0.04, 0.16)),
            // Overlapping work.
            ((100.0, 130.0, 4.0, 20.0), (0.0, 0.0, 0.0, 0.0)),
            ((100.0, 70.0, 25.0, 20.0), (0.3, 0.05, 0.25, 0.0)),
            ((100.0, 50.0, -1.0, 20.0), (0.5, 0.2, 0.0, 0.3)),
        ] {
            let (elapsed_s, busy_s, starting_s, waiting_s) = times;
            let idle = IdleTime::new(elapsed_s, busy_s, starting_s, waiting_s).finish();
            let (share, waiting, starting, other) = expected;
            let expected = Idle {
                share,
                waiting,
                starting,
                other,
            };
            assert_eq!(idle, Some(expected), "{times:?}");
        }
        assert_eq!(IdleTime::default().finish(), None);
    }

    #[test]
    fn a_tier_begins_above_its_threshold_and_a_short_run_has_none() {
        let tier = |share, elapsed_s| {
            let idle = Idle {
                share,
                ..Idle::default()
            };
            idle.tier(elapsed_s)
        };
        let tiers = [0.05, 0.051, 0.2, 0.201].map(|share| tier(share, Some(10.0)));
        let expected = [Tier::None, Tier::Mild, Tier::Mild, Tier::Critical].map(Some);
        assert_eq!(tiers, expected);
        assert_eq!((tier(0.9, Some(9.9)), tier(0.9, None)), (None, None));
    }
}
