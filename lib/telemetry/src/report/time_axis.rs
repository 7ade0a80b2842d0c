//! The time axis of charts: all recordings of a log in a row.

use super::time_span::{Moment, micros, seconds};

/// Samples further apart than this, and than 2.5 times the interval that was asked for, belong to two recordings. The axis
/// has no time between recordings.
const MAX_GAP_S: f64 = 600.0;

/// Places samples on the axis, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeAxis {
    last: Option<Moment>,
    end_us: i64,
}

impl TimeAxis {
    /// Returns the seconds of a sample on the axis.
    pub(super) fn place(&mut self, moment: Moment, interval_s: Option<f64>) -> f64 {
        let last = self.last.replace(moment);
        let last = last.filter(|last| last.clock == moment.clock);
        let passed_us = last.map_or(0, |last| moment.at_us - last.at_us);
        let max_gap_s = MAX_GAP_S.max(2.5 * interval_s.unwrap_or(0.0));
        if (0..micros(max_gap_s)).contains(&passed_us) {
            self.end_us = self.end_us.saturating_add(passed_us);
        }
        seconds(self.end_us)
    }

    /// Returns how long was recorded in all, in microseconds.
    pub(super) fn end_us(&self) -> i64 {
        self.end_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_follow_one_another_without_gaps() {
        let mut axis = TimeAxis::default();
        for (clock, second, expected) in [
            (1, 100.0, 0.0),
            (1, 101.0, 1.0),
            (1, 101.0, 1.0),
            (2, 5.0, 1.0),
            (2, 7.0, 3.0),
            (2, 5000.0, 3.0),
            (2, 5001.0, 4.0),
            (0, 0.0, 4.0),
        ] {
            let moment = Moment {
                clock,
                at_us: micros(second),
            };
            assert_eq!(axis.place(moment, None).to_bits(), f64::to_bits(expected));
        }
    }
}
