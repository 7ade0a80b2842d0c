//! The times that readings stand for.

use std::ops::Range;

use super::moments::{Moment, micros};

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
