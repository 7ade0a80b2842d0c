//! The times that readings stand for.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use rangemap::RangeSet;

use super::time_span::{Moment, micros};

/// Times that readings stand for, without gaps. Beyond it, the earliest gap is forgotten.
const MAX_TIMES: usize = 4096;

/// Rows before and after a row whose intervals tell the pace.
const AROUND: usize = 4;

/// A row of a log.
#[derive(Clone, Debug)]
pub(super) struct Row<T> {
    pub(super) moment: Moment,
    /// The interval that its recording was asked for, if known.
    pub(super) interval_s: Option<f64>,
    /// Whether it has values.
    pub(super) is_reading: bool,
    pub(super) values: T,
}

/// A row, and the time that it stands for.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) row: Row<T>,
    /// The time since the previous reading, in microseconds; 0 if the row stands for none.
    pub(super) us: i64,
    /// The parts of that time that no row stood for before.
    pub(super) fresh: Vec<Range<i64>>,
}

impl<T> Placed<T> {
    /// Returns the length of the fresh parts, in microseconds.
    pub(super) fn fresh_us(&self) -> i64 {
        self.fresh.iter().map(length).sum()
    }
}

/// Finds the time that each reading of a GPU stands for: from the previous reading, unless that is a gap.
///
/// A gap is longer than 2.5 times the nominal interval. The nominal interval is the greater of two: what the recording was
/// asked for, and the median of the intervals of up to nine rows around, rows without values included. The median serves
/// logs that do not say what was asked for, follows a log from one interval to another, and allows for a driver that takes
/// longer than was asked for. Rows are held back until the next four are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace<T> {
    waiting: VecDeque<Row<T>>,
    /// Microseconds between a row and the one before it, or 0: of the waiting rows, and of some before them.
    intervals_us: VecDeque<i64>,
    last_row: Option<Moment>,
    last_reading: Option<Moment>,
    /// For each clock of a row, the times that readings stand for.
    covered: BTreeMap<usize, RangeSet<i64>>,
}

impl<T> Pace<T> {
    /// Adds a row. Returns an earlier one, if its time is known by now.
    pub(super) fn push(&mut self, row: Row<T>) -> Option<Placed<T>> {
        if self.last_row == Some(row.moment) {
            // Read twice. It must not count among the rows around.
            if let Some(last) = self.waiting.back_mut().filter(|last| !last.is_reading) {
                *last = row;
            }
            return None;
        }
        let time = since(self.last_row.replace(row.moment), row.moment);
        self.intervals_us.push_back(time.as_ref().map_or(0, length));
        self.waiting.push_back(row);
        (self.waiting.len() > AROUND).then(|| self.pop()).flatten()
    }

    /// Returns the next row. To be called at the end, until there is none.
    pub(super) fn pop(&mut self) -> Option<Placed<T>> {
        let place = self.intervals_us.len() - self.waiting.len();
        let row = self.waiting.pop_front()?;
        let nominal_us = self.nominal_us(place, row.interval_s);
        if place == AROUND {
            self.intervals_us.pop_front();
        }
        let covered = self.covered.entry(row.moment.clock).or_default();
        let last = row
            .is_reading
            .then(|| self.last_reading.replace(row.moment));
        let time = since(last.flatten(), row.moment);
        let time = time.filter(|time| 2 * length(time) <= 5 * nominal_us);
        let us = time.as_ref().map_or(0, length);
        let mut fresh = Vec::new();
        if let Some(time) = time {
            fresh.extend(covered.gaps(&time));
            covered.insert(time);
            limit(covered, MAX_TIMES);
        }
        Some(Placed { row, us, fresh })
    }

    fn nominal_us(&self, place: usize, interval_s: Option<f64>) -> i64 {
        let around = self.intervals_us.iter().take(place + AROUND + 1);
        let mut around: Vec<i64> = around.copied().filter(|&us| us > 0).collect();
        around.sort_unstable();
        let median_us = around.get(around.len().saturating_sub(1) / 2).copied();
        median_us.max(interval_s.map(micros)).unwrap_or(0)
    }

    /// Returns the parts of a time that no reading stands for. The time must not be empty.
    pub(super) fn gaps(&self, clock: usize, time: &Range<i64>) -> Vec<Range<i64>> {
        let covered = self.covered.get(&clock);
        covered.map_or_else(
            || vec![time.clone()],
            |covered| covered.gaps(time).collect(),
        )
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

fn length(time: &Range<i64>) -> i64 {
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
        let rows = rows.iter().map(|at| Row {
            moment: Moment {
                clock: 0,
                at_us: at.abs(),
            },
            interval_s,
            is_reading: *at >= 0,
            values: (),
        });
        let mut found: Vec<_> = rows.filter_map(|row| pace.push(row)).collect();
        found.extend(std::iter::from_fn(|| pace.pop()));
        let starts = found.into_iter();
        starts
            .map(|row| row.fresh.first().map_or(-1, |time| time.start))
            .collect()
    }

    #[test]
    fn a_reading_stands_for_the_time_since_the_previous_one() {
        assert!(starts(&[], None).is_empty());
        assert_eq!(starts(&[7], None), [-1]);
        assert_eq!(starts(&[0, 500], None), [-1, 0]);
        assert_eq!(
            starts(&[0, 10, 20, 45, 55, 65], None),
            [-1, 0, 10, 20, 45, 55]
        );
        assert_eq!(
            starts(&[0, 10, 20, 46, 56, 66], None),
            [-1, 0, 10, -1, 46, 56]
        );
        assert_eq!(starts(&[0, 10, 10, 5, 15], None), [-1, 0, -1, 10]);
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
    fn a_log_that_goes_on_at_another_interval_has_no_gap() {
        let fast = (0..20).map(|row| row * 20);
        let rows: Vec<i64> = fast.chain((1..20).map(|row| 380 + row * 1000)).collect();
        let expected: Vec<i64> = [-1].into_iter().chain(rows[..38].iter().copied()).collect();
        assert_eq!(starts(&rows, None), expected);
    }

    #[test]
    fn the_interval_that_was_asked_for_counts_unless_the_rows_are_slower() {
        assert_eq!(starts(&[0, 10, 20, 46], Some(10e-6)), [-1, 0, 10, -1]);
        assert_eq!(starts(&[0, 10, 20, 46], Some(11e-6)), [-1, 0, 10, 20]);
        assert_eq!(starts(&[0, 300, 600, 900], Some(20e-6)), [-1, 0, 300, 600]);
    }

    #[test]
    fn rows_without_values_stand_for_nothing() {
        assert_eq!(starts(&[0, 10, -20, 30, 40], None), [-1, 0, -1, 10, 30]);
        let lost = [0, 10, -20, -30, -40, 50, 60];
        assert_eq!(starts(&lost, None), [-1, 0, -1, -1, -1, -1, 50]);
    }
}
