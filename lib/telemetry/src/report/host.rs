//! Hosts over a recording.

use plmkit_logs::{GpuSample, Subject};
use serde::Serialize;

use super::pace::Pace;
use super::times::{Moment, WorkTimes, micros, seconds};
use super::values::{Figures, Readings, metrics};

/// Samples further apart than this, and than 2.5 times the interval that was asked for, belong to two recordings. The time axis
/// of charts has no time between recordings.
const MAX_GAP_S: f64 = 600.0;

/// A host over the time of the runs that it saw; without runs, over the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name, if a run with its boot id tells it.
    pub host: Option<String>,
    /// Memory.
    pub mem_total_mib: Option<u64>,
    /// Its figures over the time.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The rows of a host, by one clock.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRows {
    name: Option<String>,
    last: Option<Moment>,
    /// How long was recorded in all: the end of the time axis.
    pub(super) recorded_us: i64,
    pace: Pace,
    mem_total_mib: Option<u64>,
    readings: Readings,
}

impl HostRows {
    pub(super) fn new(boot_id: &str, times: &WorkTimes) -> Self {
        Self {
            name: times.host_of(boot_id).cloned(),
            ..Self::default()
        }
    }

    /// Adds a row. The rows of all GPUs at one moment have the same host values: only the first row counts.
    pub(super) fn add(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) {
        let last = self.last.replace(moment);
        if last == Some(moment) {
            return;
        }
        let last = last.filter(|last| last.clock == moment.clock);
        let passed_us = last.map_or(0, |last| moment.at_us - last.at_us);
        let max_gap_s = MAX_GAP_S.max(2.5 * sample.interval_s.unwrap_or(0.0));
        if (0..micros(max_gap_s)).contains(&passed_us) {
            self.recorded_us = self.recorded_us.saturating_add(passed_us);
        }
        self.mem_total_mib = self.mem_total_mib.max(sample.host_mem_total_mib);
        if let Some(time) = self.pace.place(moment, sample.interval_s, true) {
            let values = metrics(sample, Subject::Host).collect();
            let parts = times.during(None, moment.clock, &time);
            self.readings.add(&values, &parts, true);
        }
    }

    /// Returns the seconds of the last row on the time axis.
    pub(super) fn at_s(&self) -> f64 {
        seconds(self.recorded_us)
    }

    /// Completes the summary.
    pub(super) fn finish(&self, times: &WorkTimes) -> HostSummary {
        let all = &self.readings.all;
        let time_us = if times.is_empty() {
            self.recorded_us.max(all.us)
        } else {
            times.us_of_any(self.readings.runs.keys().copied())
        };
        HostSummary {
            host: self.name.clone(),
            mem_total_mib: self.mem_total_mib,
            figures: all.figures(time_us),
        }
    }
}
