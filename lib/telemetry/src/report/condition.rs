//! Whether a GPU still answers, and its memory errors.

use plmkit_logs::thresholds::{GPU_LOST_AFTER_S, GPU_LOST_MOMENTS};
use plmkit_logs::{GpuSample, Timestamp};

use super::pace::{length, since};
use super::time_span::{Moment, WorkTimes, seconds};

/// A counter of the driver while runs used the GPU; without runs, over the recording. What it counted before does not count.
/// A reloaded driver counts from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counter {
    last: Option<(u64, Moment)>,
    /// What was counted meanwhile.
    pub(super) new: Option<u64>,
}

impl Counter {
    /// Adds what was counted until `moment`. `used_us` tells for how long runs used the GPU since an earlier moment.
    fn add(&mut self, count: Option<u64>, moment: Moment, used_us: impl Fn(Moment) -> i64) {
        let Some(count) = count else { return };
        let last = self.last.replace((count, moment));
        let (before, since) = last.unwrap_or((count, moment));
        let more = count.checked_sub(before).unwrap_or(count);
        let is_new = more > 0 && used_us(since) > 0;
        let known = self.new.unwrap_or(0);
        self.new = Some(known.saturating_add(if is_new { more } else { 0 }));
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
    /// When a row last had values.
    pub(super) last_seen: Option<Timestamp>,
    /// The last row with values, or else the first row.
    quiet_since: Option<Moment>,
    last_row: Option<Moment>,
    /// Rows without values since the last one with values, or moments without a row.
    empty_rows: u64,
    /// Time of runs on this GPU in which its rows had no values.
    silent_us: i64,
}

impl Condition {
    /// Adds a row of the GPU `uuid`, before which so many moments of its log had none.
    pub(super) fn add(
        &mut self,
        sample: &GpuSample,
        uuid: Option<&str>,
        moment: Moment,
        missed: u64,
        times: &WorkTimes,
    ) {
        let last = self.last_row.filter(|last| last.clock == moment.clock);
        if last.is_some_and(|last| last.at_us >= moment.at_us) {
            // Read twice.
            return;
        }
        let used_us = |from| times.used_us(Some(from), moment, uuid);
        self.ecc_uncorrected
            .add(sample.ecc_uncorrected, moment, used_us);
        self.xid_errors.add(sample.xid_errors, moment, used_us);
        self.empty_rows += missed;
        self.last_xid = sample.last_xid.or(self.last_xid);
        self.last_row = Some(moment);
        if sample.has_values() {
            if self.is_quiet() {
                let silent_us = times.used_us(self.quiet_since, moment, uuid);
                self.silent_us = self.silent_us.saturating_add(silent_us);
            }
            self.empty_rows = 0;
            (self.quiet_since, self.last_seen) = (Some(moment), Some(sample.timestamp));
        } else {
            self.empty_rows += 1;
            self.quiet_since = self.quiet_since.or(Some(moment));
        }
    }

    /// Ends a log that had so many moments after the last row of the GPU.
    pub(super) fn end_log(&mut self, last: Moment, missed: u64) {
        if since(self.last_row, last).is_some() {
            self.last_row = Some(last);
            self.empty_rows += missed;
        }
    }

    /// Whether the values ended while the recording went on, or never came.
    pub(super) fn is_quiet(&self) -> bool {
        let quiet = self.last_row.and_then(|last| since(self.quiet_since, last));
        let quiet_s = quiet.map_or(0.0, |time| seconds(length(&time)));
        self.empty_rows >= GPU_LOST_MOMENTS && quiet_s >= GPU_LOST_AFTER_S
    }

    /// Returns for how long of its runs, or of the recording without runs, the GPU gave no values while rows came.
    pub(super) fn silent_us(&self, uuid: Option<&str>, times: &WorkTimes) -> i64 {
        let last = self.last_row.filter(|_| self.is_quiet());
        let open_us = last.map_or(0, |last| times.used_us(self.quiet_since, last, uuid));
        self.silent_us.saturating_add(open_us)
    }
}
