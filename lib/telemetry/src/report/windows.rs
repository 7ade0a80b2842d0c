//! When runs were at work, by the clock on the wall, cut where any of them begins or ends.

use std::ops::Range;

use super::runs::Runs;

/// The intervals into which the windows of all runs cut time: a sample lies in one of them, however many runs it lies in.
#[derive(Clone, Debug, Default)]
pub(super) struct Windows {
    /// Where intervals begin, in ms since 1970, sorted; the last one is empty.
    borders: Vec<i64>,
    /// Whether a run was at work, for each interval.
    at_work: Vec<bool>,
    /// The windows of each run.
    pub(super) runs: Vec<Vec<Window>>,
}

/// A stretch of a session over which the clock on the wall went on evenly.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The session of the run.
    pub(super) session: usize,
    /// When the session would have begun by this stretch's clock, in ms since 1970.
    pub(super) began_ms: Option<i64>,
    /// The intervals in it.
    pub(super) intervals: Range<usize>,
}

impl Windows {
    pub(super) fn of(runs: &Runs) -> Self {
        let stretches = || {
            runs.sessions()
                .flatten()
                .flat_map(|session| session.clock().longest())
        };
        // Both ends of a stretch belong to it.
        let ends =
            stretches().flat_map(|stretch| [stretch.first_ms, stretch.last_ms.saturating_add(1)]);
        let mut borders: Vec<i64> = ends.collect();
        borders.sort_unstable();
        borders.dedup();
        let place = |ms: i64| borders.partition_point(|&border| border < ms);
        let windows = runs.sessions().map(|sessions| {
            let windows = sessions.iter().enumerate().flat_map(|(position, session)| {
                let stretches = session.clock().longest();
                stretches.map(move |stretch| Window {
                    session: position,
                    began_ms: stretch.began_ms,
                    intervals: place(stretch.first_ms)..place(stretch.last_ms.saturating_add(1)),
                })
            });
            windows.collect::<Vec<_>>()
        });
        let runs: Vec<_> = windows.collect();
        let at_work = at_work(borders.len(), runs.iter().flatten());
        Self {
            borders,
            at_work,
            runs,
        }
    }

    /// Whether any run says when it was.
    pub(super) fn are_known(&self) -> bool {
        !self.borders.is_empty()
    }

    /// The interval of a time, if a run was at work then.
    pub(super) fn interval(&self, ms: i64) -> Option<usize> {
        let after = self.borders.partition_point(|&border| border <= ms);
        after
            .checked_sub(1)
            .filter(|&interval| self.at_work[interval])
    }
}

/// Which of so many intervals are in a window.
fn at_work<'a>(intervals: usize, windows: impl Iterator<Item = &'a Window>) -> Vec<bool> {
    let mut begin_minus_end = vec![0_i64; intervals + 1];
    for window in windows {
        begin_minus_end[window.intervals.start] += 1;
        begin_minus_end[window.intervals.end] -= 1;
    }
    let open = begin_minus_end.iter().scan(0, |open, change| {
        *open += change;
        Some(*open > 0)
    });
    open.take(intervals).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{BatchDone, Event};

    #[test]
    fn a_time_is_in_one_interval_and_each_run_knows_its_own() {
        let mut runs = Runs::default();
        for (run, first, last) in [("a", 10, 20), ("b", 15, 30), ("c", 40, 40)] {
            for second in [first, last] {
                runs.add(Event::Batch(BatchDone {
                    run: run.to_owned(),
                    time: format!("1970-01-01T00:00:{second}Z").parse().ok(),
                    ..BatchDone::default()
                }));
            }
        }
        let windows = Windows::of(&runs);
        let runs_at = |ms: i64| {
            let interval = windows.interval(ms);
            let at_work = |windows: &[Window]| {
                interval.is_some_and(|interval| {
                    windows
                        .iter()
                        .any(|window| window.intervals.contains(&interval))
                })
            };
            let runs = windows
                .runs
                .iter()
                .map(|windows| u8::from(at_work(windows)));
            (interval.is_some(), runs.collect::<Vec<_>>())
        };
        for (ms, expected) in [
            (9_999, [0, 0, 0]),
            (10_000, [1, 0, 0]),
            (15_000, [1, 1, 0]),
            (20_000, [1, 1, 0]),
            (20_001, [0, 1, 0]),
            (30_001, [0, 0, 0]),
            (40_000, [0, 0, 1]),
            (40_001, [0, 0, 0]),
        ] {
            assert_eq!(
                runs_at(ms),
                (expected != [0, 0, 0], expected.to_vec()),
                "{ms}"
            );
        }
        assert_eq!(Windows::of(&Runs::default()).interval(0), None);
    }
}
