//! One GPU over a recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use plmkit_logs::thresholds::{GPU_CRITICAL_BELOW, GPU_MILD_BELOW, GPU_MIN_SAMPLES};
use plmkit_logs::{GpuSample, Timestamp};

use super::Tier;
use super::condition::Condition;
use super::coverage::{Gap, coverage, is_enough, is_partial};
use super::energy::Reading;
use super::findings::gpu_name;
use super::gpu_count::{GpuCount, GpuDistributions};
use super::pace::{Pace, Placed, Row};
use super::throttle_count::ThrottleCount;
use super::time_span::{Moment, WorkTimes, seconds};

/// Gaps of a GPU in a run that are listed, the longest.
const MAX_GAPS: usize = 8;

/// One GPU over the time of the runs that used it; if no run did, over the time of all runs; without runs, over the
/// recording. Means and shares are weighted by time, and `None` below half coverage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuSummary {
    /// The driver's number of the GPU.
    pub index: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The product name.
    pub name: Option<String>,
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
    /// Mean share of the time, over all streaming multiprocessors, in which one had work.
    pub mean_sm_active: Option<f64>,
    /// Mean share of the time in which the tensor cores computed.
    pub mean_tensor_active: Option<f64>,
    /// Mean share of the time in which data went to or from device memory.
    pub mean_dram_active: Option<f64>,
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
    /// Mean power draw in watts: by the energy counter, or else the mean of the readings.
    pub mean_power_w: Option<f64>,
    /// Share of the time in which something held the clocks down; `None` if the driver does not say.
    pub throttled_share: Option<f64>,
    /// Share of the time by the reason that held the clocks down.
    pub throttle_reasons: Option<BTreeMap<String, f64>>,
    /// Share of the time with foreign processes on the GPU; `None` if no command was recorded.
    pub foreign_share: Option<f64>,
    /// Distributions of its values.
    pub distributions: GpuDistributions,
    /// Uncorrected memory errors that occurred during the recording; `None` if the driver does not say.
    pub new_ecc_uncorrected: Option<u64>,
    /// Whether its values ended while the recording went on, or never came.
    pub lost: bool,
    /// When it last gave values.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub last_seen: Option<Timestamp>,
    /// Seconds of the runs that used it in which rows came without values; without runs, of the recording.
    pub silent_s: f64,
    /// The tier of the mean utilisation; `None` for a GPU without a run, that is lost, with fewer than [`GPU_MIN_SAMPLES`]
    /// readings, or without a known mean.
    pub bottleneck: Option<Tier>,
    /// Throttling, for findings.
    #[serde(skip)]
    pub(super) throttling: ThrottleCount,
    /// Its health, for findings.
    #[serde(skip)]
    pub(super) condition: Condition,
}

impl GpuSummary {
    /// Returns its name in sentences.
    pub(super) fn label(&self) -> String {
        gpu_name(self.index, self.name.as_deref())
    }
}

/// The rows of one GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuRows {
    /// Its names and constants are up to date.
    pub(super) gpu: GpuSummary,
    pace: Pace<GpuSample>,
    /// The energy counter of the last reading.
    last_energy_j: Option<f64>,
    /// The whole recording.
    all: GpuCount,
    /// The runs that used it, or all runs if none did.
    inside: GpuCount,
    /// Each run that used it.
    by_run: BTreeMap<usize, GpuCount>,
}

impl GpuRows {
    /// Whether a sample is of this GPU.
    pub(super) fn is_of(&self, sample: &GpuSample) -> bool {
        let gpu = &self.gpu;
        gpu.uuid == sample.uuid && (gpu.uuid.is_some() || gpu.index == sample.index)
    }

    pub(super) fn add(&mut self, sample: &GpuSample, moment: Moment, times: &WorkTimes) {
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
        gpu.condition.add(sample, moment, times);
        let placed = self.pace.push(Row {
            moment,
            interval_s: sample.interval_s,
            is_reading: sample.has_values(),
            values: sample.clone(),
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

    fn count(&mut self, placed: &Placed<GpuSample>, times: &WorkTimes) {
        let row = &placed.row;
        let sample = &row.values;
        let before_j = (row.is_reading)
            .then(|| std::mem::replace(&mut self.last_energy_j, sample.energy_j))
            .flatten();
        let reading = Reading {
            sample,
            us: placed.us,
            // A reloaded driver counts from 0.
            counted_j: (sample.energy_j.zip(before_j))
                .and_then(|(now_j, before_j)| (now_j >= before_j).then_some(now_j - before_j)),
        };
        self.all.readings += u64::from(!placed.fresh.is_empty());
        let uuid = self.gpu.uuid.as_deref();
        let is_used = times.are_on(uuid);
        let (mut is_inside, mut of_runs) = (false, BTreeSet::new());
        for time in &placed.fresh {
            self.all.add(&reading, time.end - time.start, 1);
            for (us, work) in times.parts(row.moment.clock, time.clone()) {
                let users = work.iter().filter(|work| work.uses(uuid));
                let runs: BTreeSet<usize> = users.map(|work| work.run).collect();
                if !runs.is_empty() || !is_used {
                    is_inside = true;
                    self.inside.add(&reading, us, runs.len());
                }
                for &run in &runs {
                    let count = self.by_run.entry(run).or_default();
                    count.add(&reading, us, runs.len());
                }
                of_runs.extend(runs);
            }
        }
        self.inside.readings += u64::from(is_inside);
        for run in of_runs {
            self.by_run.entry(run).or_default().readings += 1;
        }
    }

    /// The clocks that its rows have.
    pub(super) fn clocks(&self) -> impl Iterator<Item = usize> {
        self.pace.clocks()
    }

    /// Returns the readings of a run.
    pub(super) fn during(&self, run: usize) -> Option<&GpuCount> {
        self.by_run.get(&run)
    }

    /// Returns the longest times of a run that no reading stands for, in their order.
    pub(super) fn gaps(&self, run: usize, times: &WorkTimes) -> Vec<Gap> {
        let (mut gaps, mut before_us) = (Vec::new(), 0);
        for (clock, time) in times.times_of(run) {
            let of_run = |us: i64| seconds(us - time.start + before_us);
            gaps.extend(self.pace.gaps(clock, &time).into_iter().map(|gap| Gap {
                from_s: of_run(gap.start),
                to_s: of_run(gap.end),
            }));
            before_us += time.end - time.start;
        }
        Gap::longest(gaps, MAX_GAPS)
    }

    /// Completes the summary. `recorded_us` is the time of the recording if the figures are of all of it, and not of runs.
    pub(super) fn finish(
        &self,
        in_run: bool,
        recorded_us: Option<i64>,
        times: &WorkTimes,
    ) -> GpuSummary {
        let (uuid, condition) = (self.gpu.uuid.as_deref(), &self.gpu.condition);
        let is_used = times.are_on(uuid);
        let runs_us = || times.time_us(|work| !is_used || work.uses(uuid));
        let (count, time_us) = match recorded_us {
            Some(recorded_us) => (&self.all, recorded_us.max(self.all.us)),
            None => (&self.inside, runs_us()),
        };
        let throttling = &count.throttling;
        let throttled = Some(throttling).filter(|known| is_enough(coverage(known.us, time_us)));
        let [sm, tensor, dram, hot_share, foreign_share] = count.shares(time_us);
        let (memory, temperature) = count.greatest();
        let coverage = coverage(count.us, time_us);
        let mean_utilization = count.mean_utilization(time_us);
        // The driver knows the name even of a GPU that was lost before the recording began.
        let is_known = uuid.is_some() || self.gpu.name.is_some() || condition.has_values();
        let lost = is_known && condition.is_quiet();
        let readings = count.readings.min(count.utilization_readings());
        let judged = in_run && !lost && readings >= GPU_MIN_SAMPLES;
        GpuSummary {
            in_run,
            samples: count.readings,
            coverage,
            partial: is_partial(coverage),
            mean_utilization,
            mean_sm_active: sm,
            mean_tensor_active: tensor,
            mean_dram_active: dram,
            peak_mem_used_mib: memory.map(|mib| mib as u64),
            max_temperature_c: temperature.map(|celsius| celsius as u32),
            hot_share,
            mean_power_w: count.energy.mean_w(time_us),
            throttled_share: throttled.map(|known| known.share(known.any_us)),
            throttle_reasons: throttled.map(ThrottleCount::shares),
            foreign_share,
            distributions: count.distributions(time_us),
            new_ecc_uncorrected: condition.ecc_uncorrected.new,
            lost,
            last_seen: condition.last_seen,
            silent_s: seconds(condition.silent_us(uuid, times)),
            bottleneck: mean_utilization
                .filter(|_| judged)
                .map(|mean| Tier::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)),
            throttling: throttling.clone(),
            ..self.gpu.clone()
        }
    }
}
