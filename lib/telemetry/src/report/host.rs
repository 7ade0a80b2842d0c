//! The host over a recording.

use serde::Serialize;

use plmkit_logs::GpuSample;

use super::coverage::{coverage, is_partial};
use super::pace::{Pace, Placed, Row};
use super::time_span::{Moment, WorkTimes};
use super::value_count::TimedMean;

/// The host over the time of the runs; without runs, over the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostSummary {
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
}

/// CPU utilisation and memory in use at one moment.
type HostValues = (Option<f64>, Option<u64>);

/// Sums over some of the readings.
#[derive(Clone, Debug, Default)]
struct HostCount {
    readings: u64,
    us: i64,
    cpu: TimedMean,
    peak_mem_used_mib: Option<u64>,
}

/// The rows of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRows {
    last: Option<Moment>,
    pace: Pace<HostValues>,
    mem_total_mib: Option<u64>,
    all: HostCount,
    inside: HostCount,
}

impl HostRows {
    /// Adds a row. The rows of all GPUs at one moment have the same host values: only the first row counts.
    pub(super) fn add(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) {
        if self.last.replace(moment) == Some(moment) {
            return;
        }
        self.mem_total_mib = self.mem_total_mib.max(sample.host_mem_total_mib);
        let placed = self.pace.push(Row {
            moment,
            interval_s: sample.interval_s,
            is_reading: true,
            values: (sample.host_cpu_util, sample.host_mem_used_mib),
        });
        if let Some(placed) = placed {
            self.count(&placed, times);
        }
    }

    /// Counts the rows that were held back.
    pub(super) fn flush(&mut self, times: &WorkTimes) {
        while let Some(placed) = self.pace.pop() {
            self.count(&placed, times);
        }
    }

    fn count(&mut self, placed: &Placed<HostValues>, times: &WorkTimes) {
        let (clock, (cpu, mem_used_mib)) = (placed.row.moment.clock, placed.row.values);
        let parts = placed.fresh.iter();
        let inside_us = parts.flat_map(|time| times.parts(clock, time.clone()));
        let inside_us = inside_us.map(|(us, _)| us).sum();
        let all_us = placed.fresh.iter().map(|time| time.end - time.start).sum();
        for (count, us) in [(&mut self.all, all_us), (&mut self.inside, inside_us)] {
            if us > 0 {
                count.readings += 1;
                count.us += us;
                count.peak_mem_used_mib = count.peak_mem_used_mib.max(mem_used_mib);
                count.cpu.add(cpu, us);
            }
        }
    }

    /// Whether a reading stands for a part of a run.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.us > 0
    }

    /// Completes the summary. `recorded_us` is the time of the recording if the figures are of all of it, and not of runs.
    pub(super) fn finish(&self, recorded_us: Option<i64>, times: &WorkTimes) -> HostSummary {
        let (count, time_us) = match recorded_us {
            Some(recorded_us) => (&self.all, recorded_us.max(self.all.us)),
            None => (&self.inside, times.time_us(|_| true)),
        };
        let coverage = coverage(count.us, time_us);
        HostSummary {
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            mean_cpu_utilization: count.cpu.mean(time_us).map(|percent| percent / 100.0),
            peak_mem_used_mib: count.peak_mem_used_mib,
            mem_total_mib: self.mem_total_mib,
        }
    }
}
