//! Whether a GPU still answers, and its memory errors.

use std::ops::Range;

use plmkit_logs::thresholds::GPU_LOST_MOMENTS;
use plmkit_logs::{GpuSample, Timestamp};

use super::pace::since;
use super::time_span::{Moment, WorkTimes};

/// What the rows of a GPU tell about its health, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Condition {
    last_ecc_uncorrected: Option<u64>,
    /// Uncorrected memory errors that occurred during the recording.
    pub(super) new_ecc_uncorrected: Option<u64>,
    /// When a row last had values.
    pub(super) last_seen: Option<Timestamp>,
    /// The last row with values, or else the first row.
    quiet_since: Option<Moment>,
    last_row: Option<Moment>,
    /// Rows without values since the last one with values.
    empty_rows: u64,
    /// Time of runs on this GPU in which its rows had no values.
    silent_us: i64,
}

impl Condition {
    /// Adds a row of the GPU `uuid`.
    pub(super) fn add(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) {
        if let Some(errors) = sample.ecc_uncorrected {
            // Errors from before the recording do not count. A reloaded driver counts from 0.
            let before = self.last_ecc_uncorrected.replace(errors).unwrap_or(errors);
            *self.new_ecc_uncorrected.get_or_insert(0) +=
                errors.checked_sub(before).unwrap_or(errors);
        }
        self.last_row = Some(moment);
        if sample.has_values() {
            if self.is_quiet() {
                self.silent_us += self.quiet_us(moment, sample.uuid.as_deref(), times);
            }
            self.empty_rows = 0;
            (self.quiet_since, self.last_seen) = (Some(moment), Some(sample.timestamp));
        } else {
            self.empty_rows += 1;
            self.quiet_since = self.quiet_since.or(Some(moment));
        }
    }

    /// Whether the values ended while the recording went on, or never came.
    pub(super) fn is_quiet(&self) -> bool {
        self.empty_rows >= GPU_LOST_MOMENTS
    }

    /// Whether a row ever had values.
    pub(super) fn has_values(&self) -> bool {
        self.last_seen.is_some()
    }

    /// Returns for how long of its runs, or of the recording without runs, the GPU gave no values while rows came.
    pub(super) fn silent_us(&self, uuid: Option<&str>, times: &WorkTimes) -> i64 {
        let last = self.last_row.filter(|_| self.is_quiet());
        let open_us = last.map_or(0, |last| self.quiet_us(last, uuid, times));
        self.silent_us + open_us
    }

    fn quiet_us(&self, to: Moment, uuid: Option<&str>, times: &WorkTimes) -> i64 {
        let of_runs = |time: Range<i64>| {
            if !times.are_known() {
                return time.end - time.start;
            }
            let parts = times.parts(to.clock, time);
            let used = parts.filter(|(_, work)| work.iter().any(|work| work.uses(uuid)));
            used.map(|(us, _)| us).sum()
        };
        since(self.quiet_since, to).map_or(0, of_runs)
    }
}
