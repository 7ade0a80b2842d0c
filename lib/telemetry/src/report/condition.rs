//! Whether a GPU still answers, and its memory errors.

use std::ops::Range;

use plmkit_logs::thresholds::GPU_LOST_MOMENTS;
use plmkit_logs::{GpuSample, Timestamp};

use super::pace::since;
use super::time_span::{Moment, WorkTimes};

/// A counter of the driver over the recording. What it counted before does not count. A reloaded driver counts from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counter {
    last: Option<u64>,
    /// What was counted during the recording.
    pub(super) new: Option<u64>,
}

impl Counter {
    fn add(&mut self, count: Option<u64>) {
        let Some(count) = count else { return };
        let before = self.last.replace(count).unwrap_or(count);
        *self.new.get_or_insert(0) += count.checked_sub(before).unwrap_or(count);
    }
}

/// What the rows of a GPU tell about its health, in the order of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Condition {
    /// Uncorrected memory errors.
    pub(super) ecc_uncorrected: Counter,
    pub(super) xid_errors: Counter,
    /// The number of the last Xid error.
    pub(super) last_xid: Option<u64>,
    /// Above 0 if the next reset repairs memory, and if memory could not be repaired.
    pub(super) repair: (Option<u64>, Option<u64>),
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
        self.ecc_uncorrected.add(sample.ecc_uncorrected);
        self.xid_errors.add(sample.xid_errors);
        self.last_xid = sample.last_xid.or(self.last_xid);
        self.repair.0 = sample.repair_pending.or(self.repair.0);
        self.repair.1 = sample.repair_failed.or(self.repair.1);
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
