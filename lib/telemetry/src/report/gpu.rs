//! One GPU over a recording.

use std::mem;

use plmkit_contract::plural;
use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_LOST_AFTER_S, GPU_LOST_MOMENTS, GPU_MILD_BELOW, GPU_MIN_SAMPLES,
    POWER_POSSIBLE_UP_TO, POWER_POSSIBLE_UP_TO_W,
};
use plmkit_logs::{GpuSample, Timestamp, is_instance};
use serde::Serialize;

use super::findings::gpu_name;
use super::pace::{Pace, length, since};
use super::times::{Moment, WorkTimes, seconds};
use super::values::{
    During, Energy, GpuFigures, Readings, Values, energy_w, gpu_values, is_enough,
};
use super::{Tier, joined, percent};

/// One GPU over the time of the runs that used it; if no run did, over the time of all runs; without runs, over the
/// recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name.
    pub name: Option<String>,
    /// The name of its host, if a run tells it.
    pub host: Option<String>,
    /// Whether a run used it. A run on GPUs that does not name them used all.
    pub in_run: bool,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The temperature above which it is hot: 5 °C below the limit of its board, or 80 °C.
    pub hot_above_c: Option<u32>,
    /// Its figures over the time.
    #[serde(flatten)]
    pub figures: GpuFigures,
    /// Uncorrected memory errors that occurred while runs used it; without runs, during the recording. `None` if the driver does
    /// not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Whether its values ended while the recording went on, or never came.
    pub lost: bool,
    /// When it last gave values.
    pub last_seen: Option<Timestamp>,
    /// Seconds of the runs that used it in which rows came without values; without runs, of the recording.
    pub silent_s: f64,
    /// The tier of the mean utilisation; `None` for a GPU without a run, that was lost in one, with fewer than [`GPU_MIN_SAMPLES`]
    /// readings, or without a known mean.
    pub bottleneck: Option<Tier>,
    /// Xid errors that occurred, and the number of the last one, for findings.
    #[serde(skip)]
    pub(super) xid_errors: Option<u64>,
    #[serde(skip)]
    pub(super) last_xid: Option<u64>,
    /// Its host and UUID for sentences, if others may have its number.
    #[serde(skip)]
    place: Option<String>,
}

impl GpuSummary {
    /// Returns its name in sentences.
    pub(super) fn label(&self) -> String {
        let names = joined([self.name.clone(), self.place.clone()], ", ");
        gpu_name(self.index, Some(&*names).filter(|names| !names.is_empty()))
    }

    /// Names its host and UUID in sentences.
    pub(super) fn tell_apart(&mut self) {
        let uuid = self.uuid.as_deref().map(short_uuid);
        let place = joined([self.host.clone(), uuid], ", ");
        self.place = Some(place).filter(|place| !place.is_empty());
    }

    /// Whether it is a MIG instance.
    pub(super) fn is_mig(&self) -> bool {
        self.uuid.as_deref().is_some_and(is_instance)
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
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name; `None` if no sample has it.
    pub name: Option<String>,
    /// Its figures over the run; of a run with fewer than three readings, only their number and their coverage.
    #[serde(flatten)]
    pub figures: GpuFigures,
    /// Its energy over the run.
    pub energy: Energy,
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
    last: Option<(u64, Moment)>,
    /// What was counted meanwhile.
    new: Option<u64>,
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

/// The rows of one GPU, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    pub(super) gpu: GpuSummary,
    /// The position of its host.
    pub(super) host: usize,
    /// Whether a run used it. Follows from the UUID.
    is_used: bool,
    ecc_uncorrected: Counter,
    xid_errors: Counter,
    /// The number of the moment of its last row in this log, and that moment.
    last_number: Option<u64>,
    last_row: Option<Moment>,
    /// The last row with values, or else the first row.
    quiet_since: Option<Moment>,
    /// Rows without values since the last one with values, or moments without a row.
    empty_rows: u64,
    /// Time of runs on this GPU in which its rows had no values.
    silent_us: i64,
    pace: Pace,
    readings: Readings,
    /// The energy counter of the last reading.
    last_energy_j: Option<f64>,
    /// The highest power limit so far.
    power_limit_w: Option<f64>,
    /// Intervals in which energy or power was more than the board can draw.
    jumps: u64,
}

impl GpuRows {
    pub(super) fn new(host: usize, times: &WorkTimes) -> Self {
        Self {
            host,
            is_used: times.positions_on(None).next().is_some(),
            ..Self::default()
        }
    }

    /// Adds a sample. `number` is that of its moment in the log.
    pub(super) fn add(
        &mut self,
        sample: &GpuSample,
        moment: Moment,
        number: u64,
        times: &WorkTimes,
    ) {
        self.name(sample, times);
        let last = self.last_number.replace(number).unwrap_or(number);
        let is_late = self
            .last_row
            .is_some_and(|last| last.clock == moment.clock && last.at_us >= moment.at_us);
        if !is_late {
            self.empty_rows += (number - last).saturating_sub(1);
            self.check(sample, moment, times);
        }
        let limit_w = sample.power_limit_w.filter(|&limit_w| limit_w > 0.0);
        let known = self.power_limit_w.into_iter().chain(limit_w);
        self.power_limit_w = known.reduce(f64::max);
        let placed = self
            .pace
            .place(moment, sample.interval_s, sample.has_values());
        let by_limit = self.power_limit_w.map(|limit| limit * POWER_POSSIBLE_UP_TO);
        let possible_w = by_limit.unwrap_or(POWER_POSSIBLE_UP_TO_W);
        let power_w = sample.power_w.filter(|&power_w| power_w <= possible_w);
        self.jumps += u64::from(power_w != sample.power_w);
        let Some((us, fresh)) = placed else { return };
        let sample = GpuSample {
            power_w,
            ..sample.clone()
        };
        let before_j = mem::replace(&mut self.last_energy_j, sample.energy_j);
        let (watts, is_jump) = energy_w(&sample, us, before_j, possible_w);
        self.jumps += u64::from(is_jump);
        let (uuid, is_used) = (self.gpu.uuid.as_deref(), self.is_used);
        let is_chosen = |position| !is_used || times.uses(position, uuid);
        let work = times.at_work(moment.clock, &fresh, is_chosen);
        let values = gpu_values(&sample, watts);
        self.readings.add(&values, &fresh, &work, is_used, times);
    }

    /// Takes names and constants. A lost GPU may have no name at first.
    fn name(&mut self, sample: &GpuSample, times: &WorkTimes) {
        let gpu = &mut self.gpu;
        gpu.index = gpu.index.or(sample.index);
        if gpu.name.is_none() {
            gpu.name.clone_from(&sample.name);
        }
        if gpu.uuid.is_none() && sample.uuid.is_some() {
            gpu.uuid.clone_from(&sample.uuid);
            self.is_used = times.positions_on(gpu.uuid.as_deref()).next().is_some();
        }
        gpu.mem_total_mib = gpu.mem_total_mib.max(sample.mem_total_mib);
        if sample.temperature_c.is_some() {
            gpu.hot_above_c = Some(sample.hot_above_c());
        }
    }

    /// Notes what a new row tells of the health of the GPU.
    fn check(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) {
        let uuid = self.gpu.uuid.as_deref();
        let used_us = |from| times.used_us(Some(from), moment, uuid);
        self.ecc_uncorrected
            .add(sample.ecc_uncorrected, moment, used_us);
        self.xid_errors.add(sample.xid_errors, moment, used_us);
        self.gpu.last_xid = sample.last_xid.or(self.gpu.last_xid);
        self.last_row = Some(moment);
        if sample.has_values() {
            self.silent_us = self.silent_us(times);
            self.empty_rows = 0;
            (self.quiet_since, self.gpu.last_seen) = (Some(moment), Some(sample.timestamp));
        } else {
            self.empty_rows += 1;
            self.quiet_since = self.quiet_since.or(Some(moment));
        }
    }

    /// Ends a log with its last moment and the number of its moments. MIG instances come and go.
    pub(super) fn end_log(&mut self, last: Moment, moments: u64) {
        let own = self.last_number.take().filter(|_| !self.gpu.is_mig());
        if let Some(own) = own.filter(|_| since(self.last_row, last).is_some()) {
            self.last_row = Some(last);
            self.empty_rows += moments - own;
        }
    }

    /// Whether the values ended while the recording went on, or never came.
    fn is_quiet(&self) -> bool {
        let quiet = self.last_row.and_then(|last| since(self.quiet_since, last));
        let quiet_s = quiet.map_or(0.0, |time| seconds(length(&time)));
        self.empty_rows >= GPU_LOST_MOMENTS && quiet_s >= GPU_LOST_AFTER_S
    }

    /// Returns for how long of its runs, or of the recording without runs, the GPU gave no values while rows came.
    fn silent_us(&self, times: &WorkTimes) -> i64 {
        let uuid = self.gpu.uuid.as_deref();
        let last = self.last_row.filter(|_| self.is_quiet());
        let open_us = last.map_or(0, |last| times.used_us(self.quiet_since, last, uuid));
        self.silent_us.saturating_add(open_us)
    }

    /// Tells how often energy or power was wrong.
    pub(super) fn jump_note(&self) -> Option<String> {
        let intervals = Some(self.jumps).filter(|&jumps| jumps > 0);
        let intervals = plural(intervals?, "interval");
        let name = self.gpu.label();
        Some(format!(
            "{name}: its energy or power was more than the board can draw in {intervals}: left out"
        ))
    }

    /// Whether a run used it.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns its values over a time.
    pub(super) fn during(&self, time: During) -> Values {
        self.readings.during(time)
    }

    /// Completes the summary. `recorded_us` is the time of the recording if the figures are of all of it, and not of runs;
    /// `all_us` that of all runs.
    pub(super) fn finish(
        &self,
        in_run: bool,
        recorded_us: Option<i64>,
        all_us: i64,
        times: &WorkTimes,
    ) -> GpuSummary {
        let uuid = self.gpu.uuid.as_deref();
        let (values, figures) = if let Some(recorded_us) = recorded_us {
            let all = self.during(During::Recording);
            let figures = all.figures(recorded_us.max(all.us));
            (all, figures)
        } else {
            let all = self.during(During::Runs);
            let time_us = if self.is_used {
                times.time_us(times.positions_on(uuid))
            } else {
                all_us
            };
            let figures = all.figures_of_runs(time_us);
            (all, figures)
        };
        // The driver knows the name even of a GPU that was lost before the recording began.
        let is_known = uuid.is_some() || self.gpu.name.is_some() || self.gpu.last_seen.is_some();
        let lost = is_known && self.is_quiet();
        let readings = values.readings.min(values.of("gpu_util").count());
        let silent_us = self.silent_us(times);
        let judged = in_run && !(lost && silent_us > 0) && readings >= GPU_MIN_SAMPLES;
        let mean = figures.mean_utilization.filter(|_| judged);
        GpuSummary {
            in_run,
            new_ecc_uncorrected: self.ecc_uncorrected.new,
            lost,
            silent_s: seconds(silent_us),
            bottleneck: mean.map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            figures,
            xid_errors: self.xid_errors.new,
            ..self.gpu.clone()
        }
    }

    /// Returns the GPU over the time of a run.
    pub(super) fn of_run(&self, run: usize, times: &WorkTimes) -> RunGpu {
        let gpu = &self.gpu;
        let is_on_it = |&position: &usize| times.uses(position, gpu.uuid.as_deref());
        let time_us = times.time_us(times.positions_of(run).filter(is_on_it));
        let values = self.during(During::Run(run));
        let figures = values.figures_of_runs(time_us);
        let shared_s = seconds(values.shared_us);
        let few = is_enough(figures.coverage) && !values.is_enough_for_a_run();
        let few = few.then(|| {
            let samples = plural(values.readings, "sample");
            format!(
                "{samples} in the run, too few for its figures: record with a shorter --interval"
            )
        });
        let shared = (shared_s > 0.0).then(|| {
            format!(
                "other runs were at work on it for {shared_s:.1} s: each has an equal part of its energy in that time"
            )
        });
        let notes = [coverage_note(&figures), few, shared];
        let name = gpu.label();
        RunGpu {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            notes: notes
                .into_iter()
                .flatten()
                .map(|note| format!("{name}: {note}"))
                .collect(),
            figures,
            energy: values.energy(time_us),
            shared_s,
        }
    }
}

/// Explains the figures of a run that was not seen for all of its time.
fn coverage_note(figures: &GpuFigures) -> Option<String> {
    let Some(share) = figures.coverage else {
        let unknown = "its figures are unknown: the events do not tell when the run was at work";
        return Some(unknown.to_owned());
    };
    let effect = match share {
        0.0 => "its figures are unknown",
        _ if !is_enough(figures.coverage) => "too little to give figures",
        _ => "its figures are of that part, and its energy is scaled to the run",
    };
    let share = percent(share);
    figures
        .partial
        .then(|| format!("its samples cover {share} of the run, {effect}"))
}
