//! Values of a GPU or a host over time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plmkit_logs::thresholds::{COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW, RUN_MIN_READINGS};
use plmkit_logs::{GpuSample, METRICS, Mean, Subject};
use serde::Serialize;

use super::pace::length;
use super::times::{WorkTimes, seconds};

/// Names that are counted over one time: columns, conditions, and the driver's ten reasons for throttling. A log may hold more.
const MAX_NAMES: usize = 64;

/// Power by the energy counter, or else by the reading, and the part of it that is a run's own.
const ENERGY_W: &str = "energy_w";
const OWN_W: &str = "own_w";
const THROTTLED: &str = "throttled";

/// Whether something holds of a row, if it is known.
type Condition = fn(&GpuSample) -> Option<bool>;

/// Conditions of a GPU, as values of 0 and 1.
#[rustfmt::skip]
const CONDITIONS: [(&str, Condition); 6] = [
    ("hot", |sample| Some(sample.temperature_c? > sample.hot_above_c())),
    ("hot_memory", |sample| Some(sample.mem_temperature_c? >= sample.mem_temperature_limit_c?)),
    ("foreign", |sample| Some(sample.foreign_processes? > 0)),
    (THROTTLED, |sample| Some(sample.throttle.as_ref()?.active())),
    ("severe", |sample| Some(sample.throttle.as_ref()?.is_severe())),
    ("capped", |sample| sample.throttle.as_ref().map(|throttle| throttle.active() && !throttle.is_severe())),
];

/// The known values of a row, by their names.
pub(super) type RowValues = Vec<(Cow<'static, str>, f64)>;

/// Returns the values that a row has of its GPU.
pub(super) fn gpu_values(sample: &GpuSample, energy_w: Option<f64>) -> RowValues {
    let conditions = CONDITIONS.iter();
    let conditions = conditions.filter_map(|(name, of)| Some((*name, f64::from(of(sample)?))));
    let energy = energy_w.map(|watts| (ENERGY_W, watts));
    let reasons = sample.throttle.iter().flat_map(|throttle| &throttle.0);
    let reasons = reasons.map(|reason| (Cow::from(format!("{THROTTLED} {reason}")), 1.0));
    let mut values: RowValues = conditions
        .chain(energy)
        .map(|(name, value)| (name.into(), value))
        .collect();
    values.extend(metrics(sample, Subject::Gpu).chain(reasons));
    values
}

/// Returns the values that a row has of its host.
pub(super) fn host_values(sample: &GpuSample) -> RowValues {
    metrics(sample, Subject::Host).collect()
}

fn metrics(sample: &GpuSample, of: Subject) -> impl Iterator<Item = (Cow<'static, str>, f64)> {
    let metrics = METRICS.iter();
    let metrics = metrics.filter(move |metric| metric.subject == of && metric.in_reports);
    metrics.filter_map(|metric| Some((metric.column.into(), (metric.value)(sample)?)))
}

/// Returns the share of `time_us` that `covered_us` is; `None` if the time is unknown.
fn coverage(covered_us: i64, time_us: i64) -> Option<f64> {
    (time_us > 0).then(|| (covered_us as f64 / time_us as f64).min(1.0))
}

/// Whether a figure with this coverage may be shown.
pub(super) fn is_enough(coverage: Option<f64>) -> bool {
    coverage.is_some_and(|coverage| coverage >= COVERAGE_ABSENT_BELOW)
}

/// A value over time. Figures are `None` below half coverage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ValueRange {
    /// The share of the time that readings of this value stand for.
    pub coverage: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The mean, weighted by time.
    pub mean: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
}

/// Returns the figures of a value over a time. Its weights are microseconds.
fn range(value: &Mean, time_us: i64) -> ValueRange {
    let coverage = coverage(value.weight(), time_us);
    let figure = |figure: Option<f64>| figure.filter(|_| is_enough(coverage));
    ValueRange {
        coverage,
        min: figure(value.min()),
        mean: figure(value.mean()),
        max: figure(value.max()),
    }
}

/// The values of a GPU or a host over time, by the columns of the log and in their units. One that the driver never gave is not there.
pub type ValueRanges = BTreeMap<&'static str, ValueRange>;

/// Figures of a GPU over a time. Means and shares are weighted by time, and `None` below half coverage.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuFigures {
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for; `None` if the time is unknown.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole time: below 90 %.
    pub partial: bool,
    /// Mean share of the time in which a kernel ran.
    pub mean_utilization: Option<f64>,
    /// The most device memory that was seen in use, with any coverage.
    pub peak_mem_used_mib: Option<u64>,
    /// The highest temperature that was seen, with any coverage.
    pub max_temperature_c: Option<u32>,
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
    pub values: ValueRanges,
    /// Shares of the time in which heat or the power supply held the clocks down, and in which nothing but a limit or a setting
    /// did, for findings.
    #[serde(skip)]
    pub(super) severe_share: Option<f64>,
    #[serde(skip)]
    pub(super) capped_share: Option<f64>,
}

/// The energy of a GPU over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Energy {
    /// The share of the run's time whose energy was seen.
    pub coverage: Option<f64>,
    /// Joules that were seen. Where several runs computed on the GPU at one time, each has an equal part.
    pub measured_j: Option<f64>,
    /// `measured_j` over its coverage: scaled to the run's time. `None` below half coverage.
    pub total_j: Option<f64>,
}

/// All values of a GPU or a host over one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) readings: u64,
    /// The number of the last reading.
    last: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    named: BTreeMap<Cow<'static, str>, Mean>,
}

impl Values {
    /// Adds the part `us` of a reading, in which so many runs were at work on the GPU. All parts of a reading have its number, from
    /// 1 on.
    fn add(&mut self, values: &RowValues, number: u64, us: i64, runs: usize) {
        self.readings += u64::from(self.last != number);
        self.last = number;
        self.us = self.us.saturating_add(us);
        let shared_us = if runs > 1 { us } else { 0 };
        self.shared_us = self.shared_us.saturating_add(shared_us);
        for (name, value) in values {
            self.add_named(name.clone(), *value, us);
            if name == ENERGY_W {
                self.add_named(OWN_W.into(), value / runs.max(1) as f64, us);
            }
        }
    }

    fn add_named(&mut self, name: Cow<'static, str>, value: f64, us: i64) {
        if let Some(known) = self.named.get_mut(&name) {
            known.add_weighted(value, us);
        } else if self.named.len() < MAX_NAMES {
            let new = self.named.entry(name).or_default();
            new.add_weighted(value, us);
        }
    }

    /// Returns the sums over one value.
    pub(super) fn of(&self, name: &str) -> Mean {
        self.named.get(name).copied().unwrap_or_default()
    }

    /// Returns the mean of a value over a time as a quotient of sums: the exact share of a condition.
    fn share(&self, name: &str, time_us: i64) -> Option<f64> {
        let value = self.of(name);
        let is_known = value.count() > 0 && is_enough(coverage(value.weight(), time_us));
        is_known.then(|| value.sum() / value.weight() as f64)
    }

    /// Returns the share of `time_us` that readings stand for, and whether it is too low for figures of the whole time.
    pub(super) fn coverage(&self, time_us: i64) -> (Option<f64>, bool) {
        let coverage = coverage(self.us, time_us);
        let is_partial = coverage.is_some_and(|coverage| coverage < COVERAGE_MARKED_BELOW);
        (coverage, is_partial)
    }

    /// Returns the values of columns over a time.
    pub(super) fn ranges(&self, time_us: i64) -> ValueRanges {
        let columns = METRICS.iter().map(|metric| metric.column);
        let known = columns.filter(|column| self.named.contains_key(*column));
        known
            .map(|column| (column, range(&self.of(column), time_us)))
            .collect()
    }

    /// Returns the figures of a GPU over a time.
    pub(super) fn figures(&self, time_us: i64) -> GpuFigures {
        let (coverage, partial) = self.coverage(time_us);
        let share = |name: &str| self.share(name, time_us);
        let throttled_us = self.of(THROTTLED).weight() as f64;
        let reasons = self.named.iter().filter_map(|(name, time)| {
            let reason = name.strip_prefix(THROTTLED)?.strip_prefix(' ')?;
            Some((reason.to_owned(), time.weight() as f64 / throttled_us))
        });
        let throttled_share = share(THROTTLED);
        let percent = range(&self.of("gpu_util"), time_us).mean;
        GpuFigures {
            samples: self.readings,
            coverage,
            partial,
            mean_utilization: percent.map(|percent| percent / 100.0),
            peak_mem_used_mib: self.of("mem_used_mib").max().map(|mib| mib as u64),
            max_temperature_c: self.of("temperature_c").max().map(|celsius| celsius as u32),
            hot_share: share("hot"),
            hot_memory_share: share("hot_memory"),
            mean_power_w: share(ENERGY_W),
            throttled_share,
            throttle_reasons: throttled_share.map(|_| reasons.collect()),
            foreign_share: share("foreign"),
            values: self.ranges(time_us),
            severe_share: share("severe"),
            capped_share: share("capped"),
        }
    }

    /// Returns the figures of a GPU over the time of runs, which few readings do not tell of.
    pub(super) fn figures_of_runs(&self, time_us: i64) -> GpuFigures {
        let figures = self.figures(time_us);
        if self.is_enough_for_a_run() {
            return figures;
        }
        GpuFigures {
            samples: figures.samples,
            coverage: figures.coverage,
            partial: figures.partial,
            ..GpuFigures::default()
        }
    }

    /// Whether there are enough readings for the figures of a run.
    pub(super) fn is_enough_for_a_run(&self) -> bool {
        self.readings >= RUN_MIN_READINGS
    }

    /// Returns the energy of a run over its time.
    pub(super) fn energy(&self, time_us: i64) -> Energy {
        let own = self.of(OWN_W);
        let coverage = coverage(own.weight(), time_us);
        let measured_j = (own.count() > 0).then(|| own.sum() / 1e6);
        let is_told = is_enough(coverage) && self.is_enough_for_a_run();
        let total_j = measured_j.zip(coverage).filter(|_| is_told);
        Energy {
            coverage,
            measured_j,
            total_j: total_j.map(|(joules, part)| joules / part),
        }
    }
}

/// A time over which readings are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum During {
    /// The whole recording.
    Recording,
    /// The runs that used the GPU, or all runs if none did.
    Runs,
    /// The run at a position.
    Run(usize),
    /// The attempt at a position, if its run has several.
    Attempt(usize),
}

/// The values of a GPU or a host over several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// The number of the last reading.
    last: u64,
    during: BTreeMap<During, Values>,
}

impl Readings {
    /// Adds a reading, with the parts of its time that no reading stood for before, and with the work in that time: see
    /// [`WorkTimes::at_work`]. `are_own` tells that the work is that of runs on this device.
    pub(super) fn add(
        &mut self,
        values: &RowValues,
        fresh: &[Range<i64>],
        work: &[(i64, Vec<usize>)],
        are_own: bool,
        times: &WorkTimes,
    ) {
        self.last += 1;
        let mut add = |during, us, runs| {
            let of_time = self.during.entry(during).or_default();
            of_time.add(values, self.last, us, runs);
        };
        let fresh_us: i64 = fresh.iter().map(length).sum();
        if fresh_us > 0 {
            add(During::Recording, fresh_us, 1);
        }
        for (us, attempts) in work {
            let own = attempts.iter().filter(|_| are_own);
            let runs: BTreeSet<usize> = own.clone().map(|&attempt| times.run_of(attempt)).collect();
            add(During::Runs, *us, runs.len());
            let of_runs = runs.iter().map(|&run| During::Run(run));
            let of_attempts = own.map(|&attempt| times.during(attempt));
            let each: BTreeSet<During> = of_runs.chain(of_attempts).collect();
            for during in each {
                add(during, *us, runs.len());
            }
        }
    }

    /// Returns the values over a time.
    pub(super) fn during(&self, time: During) -> Values {
        self.during.get(&time).cloned().unwrap_or_default()
    }

    /// Returns the positions of the runs with readings.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> {
        self.during.keys().filter_map(|during| match during {
            During::Run(run) => Some(*run),
            _ => None,
        })
    }
}

/// Returns the power of a reading that stands for `us`, and whether the counter rose by more than the board can draw. `before_j` is
/// the counter of the previous reading. A counter that stays at 0 is none: the power of the reading counts. Of a driver that was
/// reloaded, and counts from 0, and of a jump beyond `possible_w` nothing is known.
pub(super) fn energy_w(
    sample: &GpuSample,
    us: i64,
    before_j: Option<f64>,
    possible_w: f64,
) -> (Option<f64>, bool) {
    let counters = sample.energy_j.zip(before_j);
    let Some((now_j, before_j)) = counters.filter(|(now_j, before_j)| now_j.max(*before_j) > 0.0)
    else {
        return (sample.power_w, false);
    };
    let joules = now_j - before_j;
    // A short interval may have the energy of those before it.
    let possible_j = possible_w * seconds(us).max(1.0);
    let is_possible = us > 0 && (0.0..=possible_j).contains(&joules);
    let watts = is_possible.then(|| joules / seconds(us));
    (watts, us > 0 && joules > possible_j)
}
