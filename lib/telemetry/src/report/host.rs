//! Hosts over a recording.

use std::collections::HashSet;

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::pace::Pace;
use super::times::{Moment, WorkTimes, micros, seconds};
use super::values::{During, Readings, ValueRanges, host_values};

/// Samples further apart than this, and than 2.5 times the interval that was asked for, belong to two recordings. The time axis
/// of charts has no time between recordings.
const MAX_GAP_S: f64 = 600.0;

/// A host over the time of its runs, or of one run; without runs, over the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name, if a run with its boot id tells it.
    pub host: Option<String>,
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole time: below 90 %.
    pub partial: bool,
    /// Mean share of all CPUs' time that was not idle, weighted by time. `None` below half coverage.
    pub mean_cpu_utilization: Option<f64>,
    /// The most memory that was seen in use.
    pub peak_mem_used_mib: Option<u64>,
    /// Memory.
    pub mem_total_mib: Option<u64>,
    /// Its values over the time.
    pub values: ValueRanges,
}

/// The rows of a host, by one clock.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRows {
    clock: usize,
    /// Its name, if a run with its boot id tells it.
    pub(super) name: Option<String>,
    last: Option<Moment>,
    /// How long was recorded in all: the end of the time axis.
    pub(super) recorded_us: i64,
    pace: Pace,
    mem_total_mib: Option<u64>,
    readings: Readings,
}

impl HostRows {
    pub(super) fn new(key: &str, moment: Moment, times: &WorkTimes) -> Self {
        Self {
            clock: moment.clock,
            name: times.host_of(key).cloned(),
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
        if let Some((_, fresh)) = self.pace.place(moment, sample.interval_s, true) {
            let work = times.at_work(moment.clock, &fresh, |_| true);
            let values = host_values(sample);
            self.readings.add(&values, &fresh, &work, true, times);
        }
    }

    /// Returns the seconds of the last row on the time axis.
    pub(super) fn at_s(&self) -> f64 {
        seconds(self.recorded_us)
    }

    /// Whether a reading stands for a part of a run.
    pub(super) fn is_inside(&self) -> bool {
        self.readings.during(During::Runs).us > 0
    }

    /// Completes the summary: over the recording if the figures are of all of it, else over the time of runs. By the time of
    /// day, all runs may be those of the `only` host, and else those that it saw.
    pub(super) fn finish(&self, is_whole: bool, only: bool, times: &WorkTimes) -> HostSummary {
        if is_whole {
            let all_us = self.readings.during(During::Recording).us;
            return self.summary(During::Recording, self.recorded_us.max(all_us));
        }
        if only {
            return self.summary(During::Runs, times.time_us(times.all()));
        }
        let is_of_boot = times.is_of_boot(self.clock);
        let seen: HashSet<usize> = self.runs().collect();
        let is_own = |&position: &usize| is_of_boot || seen.contains(&times.run_of(position));
        let own = times.positions_by(self.clock).filter(is_own);
        self.summary(During::Runs, times.time_us(own))
    }

    /// Returns the runs of which it has samples.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> {
        self.readings.runs()
    }

    fn summary(&self, during: During, time_us: i64) -> HostSummary {
        let values = self.readings.during(during);
        let (coverage, partial) = values.coverage(time_us);
        let is_enough = during == During::Recording || values.is_enough_for_a_run();
        let ranges = values.ranges(time_us);
        let ranges = Some(ranges).filter(|_| is_enough).unwrap_or_default();
        let cpu = ranges.get("host_cpu_util").and_then(|range| range.mean);
        let memory = values.of("host_mem_used_mib").max();
        HostSummary {
            host: self.name.clone(),
            samples: values.readings,
            coverage,
            partial,
            mean_cpu_utilization: cpu.map(|percent| percent / 100.0),
            peak_mem_used_mib: memory.map(|mib| mib as u64),
            mem_total_mib: self.mem_total_mib,
            values: ranges,
        }
    }

    /// Returns the figures of the host over a run.
    pub(super) fn of_run(&self, run: usize, times: &WorkTimes) -> HostSummary {
        self.summary(During::Run(run), times.time_us(times.positions_of(run)))
    }
}
