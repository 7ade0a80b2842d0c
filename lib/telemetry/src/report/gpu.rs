//! One GPU over a recording.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use plmkit_kit::plural;
use plmkit_logs::thresholds::{COVERAGE_MARKED_BELOW, GPU_MIN_SAMPLES};
use plmkit_logs::{GpuSample, Tier, is_instance};
use serde::Serialize;

use super::bins::Bins;
use super::figures::{GpuFigures, GpuSums, energy_w, gpu_values, is_enough};
use super::moments::{micros, seconds};
use super::percent;
use super::work::{Span, Work};

/// Samples further apart than this, and than 2.5 times the interval that was asked for, belong to two recordings. The time axis
/// of charts has no time between recordings.
pub(super) const MAX_PAUSE_S: f64 = 600.0;

/// Readings further apart than this, and than 2.5 times the interval that was asked for, have a gap between them. It allows for a
/// driver that takes longer than was asked for.
const MAX_GAP_S: f64 = 10.0;

/// One GPU over the time of the runs that used it; if no run did, over the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: String,
    pub name: Option<String>,
    /// Whether a run used it. A run on GPUs that does not name them used all; without runs, all count as used.
    pub in_run: bool,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The temperature above which it is hot: 5 °C below the limit of its board, or 80 °C.
    pub hot_above_c: Option<u32>,
    /// Its figures over the time.
    #[serde(flatten)]
    pub figures: GpuFigures,
    /// Mean power over the time, in watts: its energy over the time.
    pub mean_power_w: Option<f64>,
    /// Uncorrected memory errors that occurred in the time. `None` if the driver does not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Xid errors that occurred in that time.
    pub new_xid_errors: Option<u64>,
    /// The number of the last one.
    pub last_xid: Option<u64>,
    /// The tier of the mean utilisation; `None` for a GPU without a run, with fewer than [`GPU_MIN_SAMPLES`] readings, or without a
    /// known mean.
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
    pub figures: GpuFigures,
    /// Remarks for people: why figures are unknown, or of a part of the run.
    #[serde(skip)]
    pub(super) notes: Vec<String>,
}

/// A counter of the driver while runs used the GPU; without runs, over the recording. What it counted before does not count.
/// A reloaded driver counts from 0.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    last: Option<u64>,
    /// Whether a run used the GPU since then.
    was_used: bool,
    /// What was counted meanwhile.
    new: Option<u64>,
}

impl Counter {
    /// Adds the count of a row, if it has one. `is_used` tells whether a run used the GPU since the row before.
    fn add(&mut self, count: Option<u64>, is_used: bool) {
        self.was_used |= is_used;
        let Some(count) = count else { return };
        let before = self.last.replace(count).unwrap_or(count);
        let more = count.checked_sub(before).unwrap_or(count);
        let new = self.new.get_or_insert(0);
        if mem::take(&mut self.was_used) {
            *new = new.saturating_add(more);
        }
    }
}

/// The rows of a GPU during one boot, by the clock of that boot.
#[derive(Clone, Debug, Default)]
struct Track {
    work: Work,
    /// The time of the last row, and of the last reading: a row with values.
    row: Option<i64>,
    reading: Option<i64>,
}

/// The rows of one GPU, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    gpu: GpuSummary,
    /// Whether the times of runs count, not the recording.
    is_of_runs: bool,
    tracks: HashMap<String, Track>,
    /// How long each run was at work on it, by its position, and whether another one was meanwhile; and how long any run was.
    runs_us: HashMap<usize, (i64, bool)>,
    any_us: i64,
    ecc_uncorrected: Counter,
    xid_errors: Counter,
    /// How long was recorded in all: the end of the time axis of charts.
    recorded_us: i64,
    /// Over the runs that used the GPU; if none did, over the recording.
    all: GpuSums,
    /// Over each run, by its position.
    runs: BTreeMap<usize, GpuSums>,
    /// The energy counter of the last reading.
    last_energy_j: Option<f64>,
}

impl GpuRows {
    /// Makes a GPU without rows. `spans` has the work on it by boots; `None` if no run used it. `has_runs` tells whether there are any runs.
    pub(super) fn new(
        uuid: &str,
        spans: Option<HashMap<String, Vec<Span>>>,
        has_runs: bool,
    ) -> Self {
        let mut gpu = Self {
            gpu: GpuSummary {
                uuid: uuid.to_owned(),
                in_run: spans.is_some() || !has_runs,
                ..GpuSummary::default()
            },
            is_of_runs: spans.is_some(),
            ..Self::default()
        };
        for (boot, spans) in spans.unwrap_or_default() {
            let work = Work::new(spans);
            gpu.any_us = gpu.any_us.saturating_add(work.add_to(&mut gpu.runs_us));
            let track = Track {
                work,
                ..Track::default()
            };
            gpu.tracks.insert(boot, track);
        }
        gpu
    }

    /// Adds a sample of a boot. A row that is older than one before it, or as old, is left out.
    pub(super) fn add(&mut self, sample: &GpuSample, boot: &str, at: i64) {
        if !self.tracks.contains_key(boot) {
            self.tracks.insert(boot.to_owned(), Track::default());
        }
        let Some(track) = self.tracks.get_mut(boot) else {
            return;
        };
        let row = track.row.unwrap_or(at);
        if track.row >= Some(at) {
            return;
        }
        track.row = Some(at);
        let is_used = !self.is_of_runs || track.work.during(&(row..at)).1 > 0;
        let max_step = |most_s: f64| micros(most_s.max(2.5 * sample.interval_s.unwrap_or(0.0)));
        if at - row <= max_step(MAX_PAUSE_S) {
            self.recorded_us = self.recorded_us.saturating_add(at - row);
        }
        if sample.has_values() {
            let from = track.reading.replace(at).unwrap_or(at);
            let is_gap = at - from > max_step(MAX_GAP_S);
            let from = if is_gap { at } else { from };
            let (mut runs, mut us) = track.work.during(&(from..at));
            track.work.forget(at);
            if !self.is_of_runs {
                (runs, us) = (Vec::new(), at - from);
            }
            self.add_reading(sample, at - from, us, &runs);
        }
        self.note(sample, is_used);
    }

    /// Adds a reading that stands for `read_us`: for `us` of it runs were at work, each for a part.
    fn add_reading(&mut self, sample: &GpuSample, read_us: i64, us: i64, runs: &[(usize, i64)]) {
        let before_j = mem::replace(&mut self.last_energy_j, sample.energy_j);
        let (values, power_w) = (gpu_values(sample), energy_w(sample, read_us, before_j));
        let at_s = seconds(self.recorded_us);
        let from_s = (at_s - seconds(read_us)).max(0.0);
        if let Some(percent) = sample.gpu_util {
            self.gpu.busy.add(from_s, at_s, percent.into());
        }
        if us > 0 {
            self.all.add(&values, power_w, us);
        }
        for &(run, us) in runs {
            self.gpu.runs.entry(run).or_insert([from_s, at_s])[1] = at_s;
            self.runs.entry(run).or_default().add(&values, power_w, us);
        }
    }

    /// Notes what a row tells of the names and of the health of the GPU. `is_used` tells whether a run used it since the row before.
    fn note(&mut self, sample: &GpuSample, is_used: bool) {
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
        self.ecc_uncorrected.add(sample.ecc_uncorrected, is_used);
        self.xid_errors.add(sample.xid_errors, is_used);
    }

    /// Completes the summary.
    pub(super) fn finish(&self) -> GpuSummary {
        let time_us = if self.is_of_runs {
            self.any_us
        } else {
            self.recorded_us.max(self.all.us)
        };
        let figures = self.all.figures(time_us);
        let judged = self.gpu.in_run && figures.samples >= GPU_MIN_SAMPLES;
        let mean = figures.share("gpu_util").filter(|_| judged);
        GpuSummary {
            new_ecc_uncorrected: self.ecc_uncorrected.new,
            new_xid_errors: self.xid_errors.new,
            bottleneck: mean.map(Tier::of_utilization),
            mean_power_w: super::share(figures.energy_j, seconds(time_us)),
            figures,
            ..self.gpu.clone()
        }
    }

    /// Returns the GPU over the time of a run.
    pub(super) fn of_run(&self, run: usize) -> RunGpu {
        let (gpu, label) = (&self.gpu, self.gpu.label());
        let (time_us, is_shared) = self.runs_us.get(&run).copied().unwrap_or_default();
        let values = self.runs.get(&run).cloned().unwrap_or_default();
        let mut figures = values.figures(time_us);
        let seen = match figures.coverage {
            None => Some(
                "its figures are unknown: the events do not tell when the run was at work"
                    .to_owned(),
            ),
            Some(share) if share < COVERAGE_MARKED_BELOW => {
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
        let shared = is_shared.then(|| {
            figures.energy_j = None;
            "other runs were at work on it meanwhile: its energy is known of all together alone, as that of the GPU".to_owned()
        });
        let notes = [seen, shared].into_iter().flatten();
        RunGpu {
            uuid: gpu.uuid.clone(),
            notes: notes.map(|note| format!("{label}: {note}")).collect(),
            figures,
        }
    }
}
