//! One GPU over a recording.

use serde::Serialize;

use plmkit_contract::plural;
use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_MILD_BELOW, GPU_MIN_SAMPLES, POWER_POSSIBLE_UP_TO,
    POWER_POSSIBLE_UP_TO_W,
};
use plmkit_logs::{GpuSample, Timestamp, is_instance};

use super::condition::Condition;
use super::count::Count;
use super::findings::gpu_name;
use super::gpu_figures::GpuFigures;
use super::pace::Pace;
use super::reading::Reading;
use super::readings::{During, Readings};
use super::time_span::{Moment, WorkTimes, seconds};
use super::{Tier, joined};

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

/// The rows of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    pub(super) gpu: GpuSummary,
    /// The position of its host.
    pub(super) host: usize,
    condition: Condition,
    /// The number of the moment of its last row in this log.
    last_row: Option<u64>,
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
    pub(super) fn new(host: usize) -> Self {
        Self {
            host,
            ..Self::default()
        }
    }

    /// Ends a log with its last moment and the number of its moments.
    pub(super) fn end_log(&mut self, last: Moment, moments: u64) {
        let own = self.last_row.take();
        // Instances come and go.
        if let Some(own) = own.filter(|_| !self.gpu.is_mig()) {
            self.condition.end_log(last, moments - own);
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
        let last = self.last_row.replace(number).unwrap_or(number);
        let missed = (number - last).saturating_sub(1);
        let gpu = &mut self.gpu;
        gpu.index = gpu.index.or(sample.index);
        // A lost GPU may have no name at first.
        if gpu.uuid.is_none() || gpu.name.is_none() {
            gpu.uuid = gpu.uuid.take().or_else(|| sample.uuid.clone());
            gpu.name = gpu.name.take().or_else(|| sample.name.clone());
        }
        gpu.mem_total_mib = gpu.mem_total_mib.max(sample.mem_total_mib);
        if sample.temperature_c.is_some() {
            gpu.hot_above_c = Some(sample.hot_above_c());
        }
        let uuid = gpu.uuid.as_deref();
        self.condition.add(sample, uuid, moment, missed, times);
        let limit_w = sample.power_limit_w.filter(|&limit_w| limit_w > 0.0);
        let known = self.power_limit_w.into_iter().chain(limit_w);
        self.power_limit_w = known.reduce(f64::max);
        let placed = self
            .pace
            .place(moment, sample.interval_s, sample.has_values());
        let possible_w = self.possible_w();
        let power_w = sample.power_w.filter(|&power_w| power_w <= possible_w);
        self.jumps += u64::from(power_w != sample.power_w);
        let Some(placed) = placed else { return };
        let sample = GpuSample {
            power_w,
            ..sample.clone()
        };
        let before_j = std::mem::replace(&mut self.last_energy_j, sample.energy_j);
        let reading = Reading::of_gpu(&sample, placed.us, before_j, possible_w);
        self.jumps += u64::from(reading.is_jump);
        let uuid = self.gpu.uuid.as_deref();
        let is_used = times.are_on(uuid);
        let is_chosen = |position| !is_used || times.uses(position, uuid);
        let work = times.at_work(moment.clock, &placed.fresh, is_chosen);
        self.readings
            .add(&reading, &placed.fresh, &work, is_used, times);
    }

    /// Returns the most that the board can draw.
    fn possible_w(&self) -> f64 {
        let by_limit = self
            .power_limit_w
            .map(|limit_w| limit_w * POWER_POSSIBLE_UP_TO);
        by_limit.unwrap_or(POWER_POSSIBLE_UP_TO_W)
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

    /// Returns the sums over its readings in a time.
    pub(super) fn during(&self, time: During) -> Count {
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
        let (uuid, condition) = (self.gpu.uuid.as_deref(), &self.condition);
        let (count, time_us) = if let Some(recorded_us) = recorded_us {
            let all = self.during(During::Recording);
            let time_us = recorded_us.max(all.us);
            (all, time_us)
        } else if times.are_on(uuid) {
            let time_us = times.time_us(times.positions_on(uuid));
            (self.during(During::Runs), time_us)
        } else {
            (self.during(During::Runs), all_us)
        };
        let figures = match recorded_us {
            Some(_) => count.figures(time_us),
            None => count.figures_of_runs(time_us),
        };
        // The driver knows the name even of a GPU that was lost before the recording began.
        let is_known = uuid.is_some() || self.gpu.name.is_some() || condition.last_seen.is_some();
        let lost = is_known && condition.is_quiet();
        let readings = count.readings.min(count.readings_of("gpu_util"));
        let silent_us = condition.silent_us(uuid, times);
        let is_seen = !lost || silent_us == 0;
        let judged = in_run && is_seen && readings >= GPU_MIN_SAMPLES;
        GpuSummary {
            in_run,
            new_ecc_uncorrected: condition.ecc_uncorrected.new,
            lost,
            last_seen: condition.last_seen,
            silent_s: seconds(silent_us),
            bottleneck: figures
                .mean_utilization
                .filter(|_| judged)
                .map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            figures,
            xid_errors: condition.xid_errors.new,
            last_xid: condition.last_xid,
            ..self.gpu.clone()
        }
    }
}
