//! The times that readings stand for.

use std::ops::Range;

use super::times::{Moment, micros};

/// A driver that takes longer than was asked for takes no longer than this.
const MAX_SLOW_US: Moment = 10_000_000;

/// Finds the time that each reading of a GPU by one clock stands for: from the previous reading, unless that is a gap.
///
/// A gap is longer than 2.5 times the nominal interval: what the recording was asked for, or the time between the two rows before, up
/// to ten seconds, if that is longer. It allows for a driver that takes longer than was asked for. Where the log does not say
/// what was asked for, the time between the two rows before is the nominal interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The last row.
    pub(super) row: Option<Moment>,
    /// The time between the last two rows.
    step_us: Option<Moment>,
    reading: Option<Moment>,
}

impl Pace {
    /// Adds a row, with the interval that was asked for, if known. Returns the time that a reading stands for, which may be empty;
    /// `None` of a row without values, and of one that was read before or is older than the row before.
    pub(super) fn place(
        &mut self,
        at: Moment,
        interval_s: Option<f64>,
        is_reading: bool,
    ) -> Option<Range<Moment>> {
        let row = self.row.unwrap_or(at);
        if at < row || self.reading == Some(at) {
            return None;
        }
        let step_us = Some(at - row).filter(|&us| us > 0);
        let asked_us = interval_s.map(|interval_s| Moment::from(micros(interval_s)));
        let nominal_us = match (asked_us, self.step_us) {
            (Some(asked_us), step_us) => asked_us.max(step_us.unwrap_or(0).min(MAX_SLOW_US)),
            (None, before_us) => before_us.or(step_us).unwrap_or(0),
        };
        self.row = Some(at);
        self.step_us = step_us.or(self.step_us);
        if !is_reading {
            return None;
        }
        let from = self.reading.replace(at).unwrap_or(at);
        let is_gap = 2 * (at - from) > 5 * nominal_us;
        Some(if is_gap { at } else { from }..at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of the time that each row stands for; `-1` for none. Negative rows have no values.
    fn starts(rows: &[Moment], interval_s: Option<f64>) -> Vec<Moment> {
        let mut pace = Pace::default();
        let rows = rows.iter().map(|at| {
            let placed = pace.place(at.abs(), interval_s, *at >= 0);
            let time = placed.filter(|time| !time.is_empty());
            time.map_or(-1, |time| time.start)
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
