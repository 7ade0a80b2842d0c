//! One GPU over a recording.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::ops::Range;

use plmkit_contract::plural;
use plmkit_logs::thresholds::{GPU_LOST_AFTER_S, GPU_LOST_MOMENTS, GPU_MIN_SAMPLES};
use plmkit_logs::{GpuSample, Tier, Timestamp, is_instance};
use serde::Serialize;

use super::bins::Bins;
use super::moments::{Moment, clock_of, length, micros, seconds};
use super::pace::Pace;
use super::times::{BusyTimes, WorkTimes};
use super::values::{Figures, Values, energy_w, gpu_values, is_enough};
use super::{percent, share};

/// Samples further apart than this, and than 2.5 times the interval that was asked for, belong to two recordings. The time axis
/// of charts has no time between recordings.
pub(super) const MAX_GAP_S: f64 = 600.0;

/// One GPU over the time of the runs that used it; if no run did, over the time of all runs; without runs, over the
/// recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: String,
    /// The product name.
    pub name: Option<String>,
    /// Whether a run used it. A run on GPUs that does not name them used all.
    pub in_run: bool,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The temperature above which it is hot: 5 °C below the limit of its board, or 80 °C.
    pub hot_above_c: Option<u32>,
    /// Its figures over the time.
    #[serde(flatten)]
    pub figures: Figures,
    /// Mean power over the time, in watts: by the energy counter, or by the readings where the counter is missing. `None` if less than
    /// half was seen.
    pub mean_power_w: Option<f64>,
    /// Uncorrected memory errors that occurred while runs used it; without runs, during the recording. `None` if the driver does
    /// not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Xid errors that occurred in that time.
    pub new_xid_errors: Option<u64>,
    /// The number of the last one.
    pub last_xid: Option<u64>,
    /// Whether its values ended while the recording went on, or never came.
    pub lost: bool,
    /// When it last gave values.
    pub last_seen: Option<Timestamp>,
    /// Seconds of the runs that used it in which rows came without values; without runs, of the recording.
    pub silent_s: f64,
    /// The tier of the mean utilisation; `None` for a GPU without a run, that was lost in one, with fewer than [`GPU_MIN_SAMPLES`]
    /// readings, or without a known mean.
    pub bottleneck: Option<Tier>,
    /// Chart data: utilisation in percent over the seconds of all its recordings in a row, and when runs were at work on it, by their
    /// positions.
    #[serde(skip)]
    pub(super) busy: Bins,
    #[serde(skip)]
    pub(super) runs: BTreeMap<usize, [f64; 2]>,
}

impl GpuSummary {
    /// Returns its name in sentences, with the start of its UUID: GPUs of several machines may have one number.
    pub(super) fn label(&self) -> String {
        let index = self
            .index
            .map_or_else(|| "?".to_owned(), |index| index.to_string());
        let (name, uuid) = (self.name.as_deref(), short_uuid(&self.uuid));
        format!("gpu {index} ({}, {uuid})", name.unwrap_or("unknown"))
    }
}

/// Returns the start of a UUID, which tells GPUs apart: `GPU-` and eight digits. MIG instances may differ at the end only.
pub(super) fn short_uuid(uuid: &str) -> String {
    let length = if is_instance(uuid) { usize::MAX } else { 12 };
    uuid.chars().take(length).collect()
}

/// A GPU that a run used, over the time of that run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunGpu {
    /// Its UUID.
    pub uuid: String,
    /// Its figures over the run; of a run with fewer than three readings, only their number and their coverage.
    #[serde(flatten)]
    pub figures: Figures,
    /// Its energy over the run in joules: what was seen, scaled to the run's time. Where several runs computed on the GPU at one
    /// time, each has an equal part. `None` if less than half was seen.
    pub energy_j: Option<f64>,
    /// Seconds of the readings in which other runs were at work on it, too.
    pub shared_s: f64,
    /// Remarks for people: why figures are unknown, or of a part of the run.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// A counter of the driver while runs used the GPU; without runs, over the recording. What it counted before does not count.
/// A reloaded driver counts from 0.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    last: Option<u64>,
    /// For how long runs used the GPU since then.
    used_us: i64,
    /// What was counted meanwhile.
    new: Option<u64>,
}

impl Counter {
    /// Adds the count of a row, if it has one. Runs used the GPU for `used_us` since the row before.
    fn add(&mut self, count: Option<u64>, used_us: i64) {
        self.used_us = self.used_us.saturating_add(used_us);
        let Some(count) = count else { return };
        let before = self.last.replace(count).unwrap_or(count);
        let more = count.checked_sub(before).unwrap_or(count);
        let new = self.new.get_or_insert(0);
        if mem::take(&mut self.used_us) > 0 {
            *new = new.saturating_add(more);
        }
    }
}

/// The rows of one GPU, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    gpu: GpuSummary,
    /// When runs used it; `None` if no run did.
    own: Option<BusyTimes>,
    ecc_uncorrected: Counter,
    xid_errors: Counter,
    /// How long was recorded in all: the end of the time axis of charts.
    recorded_us: i64,
    /// Rows without values since the last one with values, the time since that one, and for how long of it runs used the GPU.
    empty_rows: u64,
    empty_us: i64,
    empty_used_us: i64,
    /// Time of runs on this GPU in which its rows had no values before.
    silent_us: i64,
    /// The last rows by each clock.
    paces: HashMap<Moment, Pace>,
    /// Over the runs that used the GPU, or over all runs if none did; without runs, over the recording.
    all: Values,
    /// Over each run, by its position.
    runs: BTreeMap<usize, Values>,
    /// The energy counter of the last reading.
    last_energy_j: Option<f64>,
}

impl GpuRows {
    pub(super) fn new(uuid: &str, times: &mut WorkTimes) -> Self {
        Self {
            gpu: GpuSummary {
                uuid: uuid.to_owned(),
                ..GpuSummary::default()
            },
            own: times.take(uuid),
            ..Self::default()
        }
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, sample: &GpuSample, at: Moment, times: &WorkTimes) {
        let (clock, is_reading) = (clock_of(at), sample.has_values());
        let row = self.paces.get(&clock).and_then(|pace| pace.row);
        if row.is_none_or(|row| row < at) {
            self.check(sample, row.unwrap_or(at)..at, times);
        }
        let pace = self.paces.entry(clock).or_default();
        let Some(time) = pace.place(at, sample.interval_s, is_reading) else {
            return;
        };
        let us = length(&time);
        let before_j = mem::replace(&mut self.last_energy_j, sample.energy_j);
        let (values, power_w) = (gpu_values(sample), energy_w(sample, us, before_j));
        let at_s = seconds(self.recorded_us);
        let from_s = (at_s - seconds(us)).max(0.0);
        if let Some(percent) = sample.gpu_util {
            self.gpu.busy.add(from_s, at_s, percent.into());
        }
        for (us, runs) in self.own.as_ref().unwrap_or(&times.all).during(&time) {
            self.all.add(at, &values, power_w, us, 1);
            for &run in runs {
                let span = self.gpu.runs.entry(run);
                span.or_insert([from_s, at_s])[1] = at_s;
                let of_run = self.runs.entry(run).or_default();
                of_run.add(at, &values, power_w, us, runs.len());
            }
        }
    }

    /// Notes what a new row tells of the names and of the health of the GPU, after the time since the row before.
    fn check(&mut self, sample: &GpuSample, passed: Range<Moment>, times: &WorkTimes) {
        let gpu = &mut self.gpu;
        gpu.index = gpu.index.or(sample.index);
        if gpu.name.is_none() {
            gpu.name.clone_from(&sample.name);
        }
        gpu.mem_total_mib = gpu.mem_total_mib.max(sample.mem_total_mib);
        if sample.temperature_c.is_some() {
            gpu.hot_above_c = Some(sample.hot_above_c());
        }
        gpu.last_xid = sample.last_xid.or(gpu.last_xid);
        let schedule = self.own.as_ref().unwrap_or(&times.all);
        let used_us = schedule.during(&passed).map(|(us, _)| us).sum();
        self.ecc_uncorrected.add(sample.ecc_uncorrected, used_us);
        self.xid_errors.add(sample.xid_errors, used_us);
        let passed_us = length(&passed);
        let max_gap_s = MAX_GAP_S.max(2.5 * sample.interval_s.unwrap_or(0.0));
        if passed_us < micros(max_gap_s) {
            self.recorded_us = self.recorded_us.saturating_add(passed_us);
        }
        if !sample.has_values() || self.empty_rows > 0 {
            self.empty_us = self.empty_us.saturating_add(passed_us);
            self.empty_used_us = self.empty_used_us.saturating_add(used_us);
        }
        if sample.has_values() {
            self.silent_us = self.silent_us();
            (self.empty_rows, self.empty_us, self.empty_used_us) = (0, 0, 0);
            self.gpu.last_seen = Some(sample.timestamp);
        } else {
            self.empty_rows += 1;
        }
    }

    /// Whether the values ended while the recording went on, or never came.
    fn is_quiet(&self) -> bool {
        self.empty_rows >= GPU_LOST_MOMENTS && self.empty_us >= micros(GPU_LOST_AFTER_S)
    }

    /// Returns for how long of its runs, or of the recording without runs, the GPU gave no values while rows came.
    fn silent_us(&self) -> i64 {
        let open_us = if self.is_quiet() {
            self.empty_used_us
        } else {
            0
        };
        self.silent_us.saturating_add(open_us)
    }

    /// Completes the summary.
    pub(super) fn finish(&self, times: &WorkTimes) -> GpuSummary {
        let all = &self.all;
        let time_us = match &self.own {
            Some(own) => own.us,
            None if times.has_runs => times.all.us,
            None => self.recorded_us.max(all.us),
        };
        let figures = all.figures(time_us);
        let in_run = self.own.is_some() || !times.has_runs;
        let (lost, silent_us) = (self.is_quiet(), self.silent_us());
        let readings = all.readings.min(all.count("gpu_util"));
        let judged = in_run && !(lost && silent_us > 0) && readings >= GPU_MIN_SAMPLES;
        let mean = figures.share("gpu_util").filter(|_| judged);
        GpuSummary {
            in_run,
            new_ecc_uncorrected: self.ecc_uncorrected.new,
            new_xid_errors: self.xid_errors.new,
            lost,
            silent_s: seconds(silent_us),
            bottleneck: mean.map(Tier::of_utilization),
            mean_power_w: share(all.energy_j(time_us), seconds(time_us)),
            figures,
            ..self.gpu.clone()
        }
    }

    /// Returns the GPU over the time of a run.
    pub(super) fn of_run(&self, run: usize) -> RunGpu {
        let (gpu, label) = (&self.gpu, self.gpu.label());
        let time_us = self.own.as_ref().map_or(0, |own| own.us_of(run));
        let values = self.runs.get(&run).cloned().unwrap_or_default();
        let figures = values.figures(time_us);
        let shared_s = seconds(values.shared_us);
        let seen = match figures.coverage {
            None => Some(
                "its figures are unknown: the events do not tell when the run was at work"
                    .to_owned(),
            ),
            Some(share) if figures.partial => {
                let effect = match share {
                    0.0 => "its figures are unknown",
                    _ if !is_enough(figures.coverage) => "too little to give figures",
                    _ => "its figures are of that part, and its energy is scaled to the run",
                };
                let share = percent(share);
                Some(format!("its samples cover {share} of the run, {effect}"))
            }
            Some(_) if !values.is_enough() => Some(format!(
                "{} in the run, too few for its figures: record with a shorter --interval",
                plural(values.readings, "sample")
            )),
            Some(_) => None,
        };
        let shared = (shared_s > 0.0).then(|| {
            format!(
                "other runs were at work on it for {shared_s:.1} s: each has an equal part of its energy in that time"
            )
        });
        let notes = [seen, shared].into_iter().flatten();
        RunGpu {
            uuid: gpu.uuid.clone(),
            notes: notes.map(|note| format!("{label}: {note}")).collect(),
            figures,
            energy_j: values.energy_j(time_us),
            shared_s,
        }
    }
}
