//! The times that readings stand for.

use std::collections::BTreeMap;
use std::ops::Range;

use rangemap::RangeSet;

use super::times::{Moment, micros};

/// Times that readings stand for, without gaps. Beyond it, the earliest gap is forgotten.
const MAX_TIMES: usize = 4096;

/// A driver that takes longer than was asked for takes no longer than this.
const MAX_SLOW_US: i64 = 10_000_000;

/// Finds the time that each reading of a GPU stands for: from the previous reading, unless that is a gap.
///
/// A gap is longer than 2.5 times the nominal interval: what the recording was asked for, or the time between the two rows before, up
/// to ten seconds, if that is longer. It allows for a driver that takes longer than was asked for. Where the log does not say
/// what was asked for, the time between the two rows before is the nominal interval.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    last_row: Option<Moment>,
    /// Microseconds between the last two rows.
    last_us: Option<i64>,
    last_reading: Option<Moment>,
    /// For each clock of a row, the times that readings stand for.
    covered: BTreeMap<usize, RangeSet<i64>>,
}

impl Pace {
    /// Adds a row, with the interval that was asked for, if known. Returns the time of a reading in microseconds, 0 if it stands for
    /// none, and the parts of that time that no reading stood for before; `None` of a row without values, and of one that was
    /// read before.
    pub(super) fn place(
        &mut self,
        moment: Moment,
        interval_s: Option<f64>,
        is_reading: bool,
    ) -> Option<(i64, Vec<Range<i64>>)> {
        let row = since(self.last_row, moment).map(|time| length(&time));
        let nominal_us = match (interval_s.map(micros), self.last_us) {
            (Some(asked_us), last_us) => asked_us.max(last_us.unwrap_or(0).min(MAX_SLOW_US)),
            (None, last_us) => last_us.or(row).unwrap_or(0),
        };
        if self.last_row != Some(moment) {
            (self.last_row, self.last_us) = (Some(moment), row);
        }
        if !is_reading || self.last_reading == Some(moment) {
            return None;
        }
        let time = since(self.last_reading.replace(moment), moment);
        let time = time.filter(|time| 2 * length(time) <= 5 * nominal_us);
        let us = time.as_ref().map_or(0, length);
        let covered = self.covered.entry(moment.clock).or_default();
        let mut fresh = Vec::new();
        if let Some(time) = time {
            fresh.extend(covered.gaps(&time));
            covered.insert(time);
            limit(covered, MAX_TIMES);
        }
        Some((us, fresh))
    }
}

/// Forgets the earliest gap of more than `most` ranges.
fn limit(times: &mut RangeSet<i64>, most: usize) {
    if times.len() > most
        && let [Some(first), Some(second)] = [0, 1].map(|place| times.iter().nth(place).cloned())
    {
        times.insert(first.start..second.end);
    }
}

/// Returns the length of a time, in microseconds.
pub(super) fn length(time: &Range<i64>) -> i64 {
    time.end - time.start
}

/// Returns the time between two moments of one clock, the first before the second.
pub(super) fn since(first: Option<Moment>, second: Moment) -> Option<Range<i64>> {
    let first = first.filter(|first| first.clock == second.clock)?;
    Some(first.at_us..second.at_us).filter(|time| !time.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of the time that each row stands for; `-1` for none. Negative rows have no values.
    fn starts(rows: &[i64], interval_s: Option<f64>) -> Vec<i64> {
        let mut pace = Pace::default();
        let rows = rows.iter().map(|at| {
            let moment = Moment {
                clock: 0,
                at_us: at.abs(),
            };
            let placed = pace.place(moment, interval_s, *at >= 0);
            placed.map_or(-1, |(_, fresh)| fresh.first().map_or(-1, |time| time.start))
        });
        rows.collect()
    }

    #[test]
    fn a_reading_stands_for_the_time_since_the_previous_one() {
        assert!(starts(&[], None).is_empty());
        assert_eq!(starts(&[7], None), [-1]);
        assert_eq!(starts(&[0, 500], None), [-1, 0]);
        assert_eq!(starts(&[0, 10, 20, 45, 55], None), [-1, 0, 10, 20, 45]);
        assert_eq!(starts(&[0, 10, 20, 46, 56], None), [-1, 0, 10, -1, 46]);
        assert_eq!(starts(&[0, 10, 10, 5, 15], None), [-1, 0, -1, -1, 10]);
    }

    #[test]
    fn memory_does_not_grow_without_end() {
        let mut times = RangeSet::new();
        for start in 0..10_000 {
            times.insert(3 * start..3 * start + 1);
            limit(&mut times, MAX_TIMES);
        }
        assert_eq!(times.len(), MAX_TIMES);
        assert_eq!(times.last(), Some(&(29_997..29_998)));
    }

    #[test]
    fn the_interval_that_was_asked_for_counts_unless_the_rows_are_slower() {
        assert_eq!(starts(&[0, 10, 20, 46], Some(10e-6)), [-1, 0, 10, -1]);
        assert_eq!(starts(&[0, 10, 20, 46], Some(11e-6)), [-1, 0, 10, 20]);
        assert_eq!(starts(&[0, 300, 600, 900], Some(20e-6)), [-1, -1, 300, 600]);
        // Two hours without a row are no pace.
        let hour_us = 3_600_000_000;
        let hours = [0, 10, 10 + hour_us, 10 + 2 * hour_us];
        assert_eq!(starts(&hours, Some(10e-6)), [-1, 0, -1, -1]);
    }

    #[test]
    fn rows_without_values_stand_for_nothing() {
        assert_eq!(starts(&[0, 10, -20, 30, 40], None), [-1, 0, -1, 10, 30]);
        let lost = [0, 10, -20, -30, -40, 50, 60];
        assert_eq!(starts(&lost, None), [-1, 0, -1, -1, -1, -1, 50]);
        assert_eq!(starts(&[0, -10, 10, 20], None), [-1, -1, 0, 10]);
    }
}
