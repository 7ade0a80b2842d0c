//! Hosts over a recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use plmkit_logs::GpuSample;

use super::coverage::{coverage, is_partial};
use super::pace::Pace;
use super::time_axis::TimeAxis;
use super::time_span::{Moment, WorkTimes};
use super::value_count::TimedMean;
use super::{joined, percent};

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

impl HostCount {
    fn add(&mut self, (cpu, mem_used_mib): HostValues, us: i64) {
        if us > 0 {
            self.readings += 1;
            self.us = self.us.saturating_add(us);
            self.peak_mem_used_mib = self.peak_mem_used_mib.max(mem_used_mib);
            cpu.into_iter()
                .for_each(|percent| self.cpu.add(percent, us));
        }
    }
}

/// The rows of a host, by one clock.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRows {
    clock: usize,
    /// Its name, if a run with its boot id tells it.
    pub(super) name: Option<String>,
    axis: TimeAxis,
    last: Option<Moment>,
    pace: Pace,
    mem_total_mib: Option<u64>,
    all: HostCount,
    inside: HostCount,
    by_run: BTreeMap<usize, HostCount>,
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
        if self.last.replace(moment) == Some(moment) {
            return;
        }
        self.axis.place(moment, sample.interval_s);
        self.mem_total_mib = self.mem_total_mib.max(sample.host_mem_total_mib);
        let Some(placed) = self.pace.place(moment, sample.interval_s, true) else {
            return;
        };
        let values = (sample.host_cpu_util, sample.host_mem_used_mib);
        let parts = times.parts_of(moment.clock, &placed.fresh, |_| true);
        let (mut inside_us, mut by_run) = (0, BTreeMap::new());
        for (us, work) in parts {
            inside_us += us;
            let runs = work.iter().map(|&position| times.run_of(position));
            for run in runs.collect::<BTreeSet<_>>() {
                *by_run.entry(run).or_insert(0) += us;
            }
        }
        self.all.add(values, placed.fresh_us());
        self.inside.add(values, inside_us);
        for (run, us) in by_run {
            let count = self.by_run.entry(run).or_default();
            count.add(values, us);
        }
    }

    /// Whether a reading stands for a part of a run.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.us > 0
    }

    /// Returns how long was recorded, in microseconds.
    pub(super) fn recorded_us(&self) -> i64 {
        self.axis.end_us()
    }

    /// Completes the summary: over the recording if the figures are of all of it, else over the time of runs. By the time of
    /// day, all runs may be those of the `only` host, and else those that it saw.
    pub(super) fn finish(&self, is_whole: bool, only: bool, times: &WorkTimes) -> HostSummary {
        if is_whole {
            return self.summary(&self.all, self.recorded_us().max(self.all.us));
        }
        if only {
            return self.summary(&self.inside, times.all_us());
        }
        let own = times.positions_by(self.clock);
        let is_of_boot = times.is_of_boot(self.clock);
        let own =
            own.filter(|&position| is_of_boot || self.by_run.contains_key(&times.run_of(position)));
        self.summary(&self.inside, times.time_us(own))
    }

    /// Returns the runs of which it has samples.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> {
        self.by_run.keys().copied()
    }

    fn summary(&self, count: &HostCount, time_us: i64) -> HostSummary {
        let coverage = coverage(count.us, time_us);
        HostSummary {
            host: self.name.clone(),
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            mean_cpu_utilization: count.cpu.mean(time_us).map(|percent| percent / 100.0),
            peak_mem_used_mib: count.peak_mem_used_mib,
            mem_total_mib: self.mem_total_mib,
        }
    }

    /// Returns the figures of the host of a run: of the `seen` hosts with samples of that time, the only one, or the only one with
    /// its GPUs (`has_gpus`). `None` if there are several.
    pub(super) fn of_run(
        hosts: &[Self],
        run: usize,
        seen: &[usize],
        has_gpus: impl Fn(usize) -> bool,
        times: &WorkTimes,
    ) -> Option<HostSummary> {
        let mut own = seen.to_vec();
        if own.len() > 1 {
            own.retain(|&host| has_gpus(host));
        }
        let [host] = own[..] else { return None };
        let time_us = times.time_us(times.positions_of(run));
        Some(hosts[host].summary(&hosts[host].by_run[&run], time_us))
    }
}

impl HostSummary {
    /// Returns the figures in a sentence, if there are any.
    pub(super) fn sentence(&self) -> Option<String> {
        let name = self
            .host
            .as_deref()
            .map_or_else(String::new, |name| format!(" {name}"));
        let cpu = self.mean_cpu_utilization.map(percent);
        let cpu = cpu.map(|cpu| format!("mean CPU utilization {cpu}"));
        let memory = self.peak_mem_used_mib.zip(self.mem_total_mib);
        let memory =
            memory.map(|(used, total)| format!("{used} of {total} MiB of memory used at most"));
        let figures = joined([cpu, memory], ", ");
        (!figures.is_empty()).then(|| format!("host{name}: {figures}"))
    }
}
