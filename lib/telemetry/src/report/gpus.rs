//! One GPU over a recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use plmkit_contract::plural;
use plmkit_logs::thresholds::{
    GPU_CRITICAL_BELOW, GPU_MILD_BELOW, GPU_MIN_SAMPLES, POWER_POSSIBLE_UP_TO,
    POWER_POSSIBLE_UP_TO_W,
};
use plmkit_logs::{GpuSample, Timestamp};

use super::condition::Condition;
use super::coverage::{Gap, coverage, is_enough, is_partial};
use super::energy::{Energy, EnergyCount, Reading};
use super::findings::gpu_name;
use super::gpu_count::{GpuCount, GpuValues};
use super::pace::{Pace, Placed};
use super::throttle_count::ThrottleCount;
use super::time_span::{Moment, WorkTimes, seconds};
use super::{Tier, joined};

/// One GPU over the time of the runs that used it; if no run did, over the time of all runs; without runs, over the
/// recording. Means and shares are weighted by time, and `None` below half coverage.
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
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole time: below 90 %.
    pub partial: bool,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// The most device memory that was seen in use, with any coverage.
    pub peak_mem_used_mib: Option<u64>,
    /// Device memory.
    pub mem_total_mib: Option<u64>,
    /// The highest temperature that was seen, with any coverage.
    pub max_temperature_c: Option<u32>,
    /// The temperature above which it is hot: 5 °C below the limit of its board, or 80 °C.
    pub hot_above_c: Option<u32>,
    /// Share of the time in which it was hot.
    pub hot_share: Option<f64>,
    /// Share of the time in which its memory was as hot as the limit of its board, or hotter.
    pub hot_memory_share: Option<f64>,
    /// Mean power draw in watts: by the energy counter, or else the mean of the readings.
    pub mean_power_w: Option<f64>,
    /// Share of the time in which something held the clocks down; `None` if the driver does not say.
    pub throttled_share: Option<f64>,
    /// Share of the time by the reason that held the clocks down.
    pub throttle_reasons: Option<BTreeMap<String, f64>>,
    /// Share of the time with foreign processes on the GPU; `None` if no command was recorded.
    pub foreign_share: Option<f64>,
    /// Its values over the time.
    pub values: GpuValues,
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
    /// Throttling, for findings.
    #[serde(skip)]
    pub(super) throttling: ThrottleCount,
    /// Its health, for findings.
    #[serde(skip)]
    pub(super) condition: Condition,
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
        self.uuid.as_deref().is_some_and(is_mig)
    }
}

/// Whether a UUID is that of a MIG instance.
fn is_mig(uuid: &str) -> bool {
    uuid.starts_with("MIG-")
}

/// Returns the start of a UUID, which tells GPUs apart: `GPU-` and eight digits. MIG instances may differ at the end only.
pub(super) fn short_uuid(uuid: &str) -> String {
    let length = if is_mig(uuid) { usize::MAX } else { 12 };
    uuid.chars().take(length).collect()
}

/// The rows of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    pub(super) gpu: GpuSummary,
    /// The position of its host.
    pub(super) host: usize,
    /// The number of the log of its last row, and of the moment in that log.
    last_place: Option<(usize, u64)>,
    pace: Pace,
    /// The energy counter of the last reading.
    last_energy_j: Option<f64>,
    /// The highest power limit so far.
    power_limit_w: Option<f64>,
    /// Intervals in which energy or power was more than the board can draw.
    jumps: u64,
    /// The whole recording.
    all: GpuCount,
    /// The runs that used it, or all runs if none did.
    inside: GpuCount,
    /// Each run that used it.
    by_run: BTreeMap<usize, GpuCount>,
    /// The energy of each process that used it, and the number of its readings.
    by_work: BTreeMap<usize, (EnergyCount, u64)>,
}

impl GpuRows {
    pub(super) fn new(host: usize) -> Self {
        Self {
            host,
            ..Self::default()
        }
    }

    /// Ends a log. `place` is that of its last moment.
    pub(super) fn end_log(&mut self, last: Moment, (log, moments): (usize, u64)) {
        let own = self.last_place.filter(|own| own.0 == log);
        // Instances come and go.
        if let Some((_, own)) = own.filter(|_| !self.gpu.is_mig()) {
            self.gpu.condition.end_log(last, moments - own);
        }
    }

    /// Adds a sample. `place` is its log, and the number of its moment there.
    pub(super) fn add(
        &mut self,
        sample: &GpuSample,
        moment: Moment,
        place: (usize, u64),
        times: &WorkTimes,
    ) {
        let last = self.last_place.replace(place).unwrap_or(place);
        let missed = if last.0 == place.0 {
            (place.1 - last.1).saturating_sub(1)
        } else {
            0
        };
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
        gpu.condition.add(sample, uuid, moment, missed, times);
        let limit_w = sample.power_limit_w.filter(|&limit_w| limit_w > 0.0);
        let known = self.power_limit_w.into_iter().chain(limit_w);
        self.power_limit_w = known.reduce(f64::max);
        let power_w = sample
            .power_w
            .filter(|&power_w| power_w <= self.possible_w());
        self.jumps += u64::from(power_w != sample.power_w);
        let placed = self
            .pace
            .place(moment, sample.interval_s, sample.has_values());
        if let Some(placed) = placed {
            let sample = GpuSample {
                power_w,
                ..sample.clone()
            };
            self.count(&sample, moment, &placed, times);
        }
    }

    /// Returns the most that the board can draw.
    fn possible_w(&self) -> f64 {
        let by_limit = self
            .power_limit_w
            .map(|limit_w| limit_w * POWER_POSSIBLE_UP_TO);
        by_limit.unwrap_or(POWER_POSSIBLE_UP_TO_W)
    }

    /// Counts a reading.
    fn count(&mut self, sample: &GpuSample, moment: Moment, placed: &Placed, times: &WorkTimes) {
        let before_j = std::mem::replace(&mut self.last_energy_j, sample.energy_j);
        let reading = Reading::new(sample, placed.us, before_j, self.possible_w());
        self.jumps += u64::from(reading.is_jump);
        let fresh_us = placed.fresh_us();
        if fresh_us == 0 {
            return;
        }
        self.all.readings += 1;
        self.all.add(&reading, fresh_us, 1);
        let uuid = self.gpu.uuid.as_deref();
        let is_used = times.are_on(uuid);
        let is_chosen = |position| !is_used || times.uses(position, uuid);
        let parts = times.parts_of(moment.clock, &placed.fresh, is_chosen);
        let parts = parts.into_iter().map(|(us, work)| {
            let runs = work.iter().map(|&position| times.run_of(position));
            let runs: BTreeSet<usize> = runs.filter(|_| is_used).collect();
            (us, work, runs)
        });
        let parts: Vec<(i64, Vec<usize>, BTreeSet<usize>)> = parts.collect();
        let (mut of_runs, mut of_work) = (BTreeSet::new(), BTreeSet::new());
        for (us, work, runs) in &parts {
            self.inside.add(&reading, *us, runs.len());
            for &run in runs {
                let count = self.by_run.entry(run).or_default();
                count.add(&reading, *us, runs.len());
                of_runs.insert(run);
            }
            for &position in work.iter().filter(|_| is_used) {
                let (energy, _) = self.by_work.entry(position).or_default();
                energy.add(&reading, *us, runs.len());
                of_work.insert(position);
            }
        }
        self.inside.readings += u64::from(!parts.is_empty());
        for run in of_runs {
            self.by_run.entry(run).or_default().readings += 1;
        }
        for position in of_work {
            self.by_work.entry(position).or_default().1 += 1;
        }
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

    /// Returns the readings of a run.
    pub(super) fn during(&self, run: usize) -> Option<&GpuCount> {
        self.by_run.get(&run)
    }

    /// Returns the energy of the process at a position, over its time.
    pub(super) fn energy_of(&self, position: usize, times: &WorkTimes) -> Energy {
        let known = self.by_work.get(&position).copied();
        let (energy, readings) = known.unwrap_or_default();
        let energy = energy.finish(times.time_us([position].into_iter()));
        energy.of_readings(readings)
    }

    /// Returns the times of a run on it that no reading stands for, in their order.
    pub(super) fn gaps(&self, run: usize, times: &WorkTimes) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (clock, time, before_us) in times.times_on(run, self.gpu.uuid.as_deref()) {
            let of_run = |us: i64| seconds(us - time.start + before_us);
            gaps.extend(self.pace.gaps(clock, &time).into_iter().map(|gap| Gap {
                from_s: of_run(gap.start),
                to_s: of_run(gap.end),
            }));
        }
        gaps
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
        let (uuid, condition) = (self.gpu.uuid.as_deref(), &self.gpu.condition);
        let runs_us = || {
            if times.are_on(uuid) {
                times.time_us(times.positions_on(uuid))
            } else {
                all_us
            }
        };
        let (count, time_us) = match recorded_us {
            Some(recorded_us) => (&self.all, recorded_us.max(self.all.us)),
            None => (&self.inside, runs_us()),
        };
        let throttling = &count.throttling;
        let throttled = Some(throttling).filter(|known| is_enough(coverage(known.us, time_us)));
        let [hot_share, foreign_share, hot_memory_share] = count.conditions(time_us);
        let memory = count.greatest("mem_used_mib");
        let temperature = count.greatest("temperature_c");
        let coverage = coverage(count.us, time_us);
        let mean_utilization = count.mean_utilization(time_us);
        // The driver knows the name even of a GPU that was lost before the recording began.
        let is_known = uuid.is_some() || self.gpu.name.is_some() || condition.has_values();
        let lost = is_known && condition.is_quiet();
        let readings = count.readings.min(count.utilization_readings());
        let silent_us = condition.silent_us(uuid, times);
        let is_seen = !lost || silent_us == 0;
        let judged = in_run && is_seen && readings >= GPU_MIN_SAMPLES;
        GpuSummary {
            in_run,
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            mean_utilization,
            peak_mem_used_mib: memory.map(|mib| mib as u64),
            max_temperature_c: temperature.map(|celsius| celsius as u32),
            hot_share,
            hot_memory_share,
            mean_power_w: count.energy.mean_w(time_us),
            throttled_share: throttled.map(|known| known.share(known.any_us)),
            throttle_reasons: throttled.map(ThrottleCount::shares),
            foreign_share,
            values: count.values(time_us),
            new_ecc_uncorrected: condition.ecc_uncorrected.new,
            lost,
            last_seen: condition.last_seen,
            silent_s: seconds(silent_us),
            bottleneck: mean_utilization
                .filter(|_| judged)
                .map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            throttling: throttling.clone(),
            ..self.gpu.clone()
        }
    }
}
