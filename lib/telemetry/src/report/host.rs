//! Hosts over a recording.

use std::collections::HashSet;

use serde::Serialize;

use plmkit_logs::GpuSample;

use super::coverage::{coverage, is_partial};
use super::pace::Pace;
use super::reading::Reading;
use super::readings::{During, Readings};
use super::time_axis::TimeAxis;
use super::time_span::{Moment, WorkTimes};
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

    /// Adds a row and returns its seconds on the time axis of the host. The rows of all GPUs at one moment have the same host
    /// values: only the first row counts.
    pub(super) fn add(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) -> f64 {
        let at_s = self.axis.place(moment, sample.interval_s);
        if self.last.replace(moment) == Some(moment) {
            return at_s;
        }
        self.mem_total_mib = self.mem_total_mib.max(sample.host_mem_total_mib);
        if let Some(placed) = self.pace.place(moment, sample.interval_s, true) {
            let reading = Reading::of_host(sample, placed.us);
            let work = times.at_work(moment.clock, &placed.fresh, |_| true);
            self.readings
                .add(&reading, &placed.fresh, &work, true, times);
        }
        at_s
    }

    /// Whether a reading stands for a part of a run.
    pub(super) fn is_inside(&self) -> bool {
        self.readings.during(During::Runs).us > 0
    }

    /// Returns how long was recorded, in microseconds.
    pub(super) fn recorded_us(&self) -> i64 {
        self.axis.end_us()
    }

    /// Completes the summary: over the recording if the figures are of all of it, else over the time of runs. By the time of
    /// day, all runs may be those of the `only` host, and else those that it saw.
    pub(super) fn finish(&self, is_whole: bool, only: bool, times: &WorkTimes) -> HostSummary {
        if is_whole {
            let all_us = self.readings.during(During::Recording).us;
            return self.summary(During::Recording, self.recorded_us().max(all_us));
        }
        if only {
            return self.summary(During::Runs, times.all_us());
        }
        let is_of_boot = times.is_of_boot(self.clock);
        let seen: HashSet<usize> = self.runs().collect();
        let own = times.positions_by(self.clock);
        let own = own.filter(|&position| is_of_boot || seen.contains(&times.run_of(position)));
        self.summary(During::Runs, times.time_us(own))
    }

    /// Returns the runs of which it has samples.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> {
        self.readings.runs()
    }

    fn summary(&self, during: During, time_us: i64) -> HostSummary {
        let count = self.readings.during(during);
        let coverage = coverage(count.us, time_us);
        let is_enough = during == During::Recording || count.is_enough_for_a_run();
        let cpu = count.mean("host_cpu_util", time_us).filter(|_| is_enough);
        let memory = count.greatest("host_mem_used_mib");
        HostSummary {
            host: self.name.clone(),
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            mean_cpu_utilization: cpu.map(|percent| percent / 100.0),
            peak_mem_used_mib: memory.map(|mib| mib as u64),
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
        Some(hosts[host].summary(During::Run(run), time_us))
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
