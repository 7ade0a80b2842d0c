//! Values of a GPU over time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use plmkit_logs::thresholds::{
    COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW, POWER_POSSIBLE_UP_TO_W, RUN_MIN_READINGS,
};
use plmkit_logs::{GpuSample, METRICS, Mean};
use serde::Serialize;

use super::times::{Part, seconds};

/// Names that are counted over one time: columns, conditions, and the driver's ten reasons for throttling. A log may hold more.
const MAX_NAMES: usize = 64;

/// Power by the energy counter, or else by the reading, of which several runs have equal parts.
const OWN_W: &str = "own_w";

/// The start of the name of a reason that holds the clocks down.
pub(super) const REASON: &str = "throttle_";

/// Whether something holds of a row, if it is known.
type Condition = fn(&GpuSample) -> Option<bool>;

/// Conditions of a GPU, as values of 0 and 1: their mean is the share of the time.
#[rustfmt::skip]
const CONDITIONS: [(&str, Condition); 4] = [
    ("hot", |sample| Some(sample.temperature_c? > sample.hot_above_c())),
    ("hot_memory", |sample| Some(sample.mem_temperature_c? >= sample.mem_temperature_limit_c?)),
    ("throttled", |sample| Some(sample.throttle.as_ref()?.active())),
    ("severe", |sample| Some(sample.throttle.as_ref()?.is_severe())),
];

/// The known values of a row, by their names.
pub(super) type RowValues = Vec<(Cow<'static, str>, f64)>;

/// Returns the values that a row has of its GPU.
pub(super) fn gpu_values(sample: &GpuSample, energy_w: Option<f64>) -> RowValues {
    let conditions = CONDITIONS.iter();
    let conditions = conditions.filter_map(|(name, of)| Some((*name, f64::from(of(sample)?))));
    let energy = energy_w.map(|watts| (OWN_W, watts));
    let reasons = sample.throttle.iter().flat_map(|throttle| &throttle.0);
    let reasons = reasons.map(|reason| (Cow::from(format!("{REASON}{reason}")), 1.0));
    let named = conditions.chain(energy);
    let named = named.map(|(name, value)| (name.into(), value));
    let metrics = METRICS.iter().filter(|metric| metric.in_reports);
    let metrics =
        metrics.filter_map(|metric| Some((metric.column.into(), (metric.value)(sample)?)));
    named.chain(metrics).chain(reasons).collect()
}

/// Returns the share of `time_us` that `covered_us` is; `None` if the time is unknown.
fn coverage(covered_us: i64, time_us: i64) -> Option<f64> {
    (time_us > 0).then(|| (covered_us as f64 / time_us as f64).min(1.0))
}

/// Whether a figure with this coverage may be shown.
pub(super) fn is_enough(coverage: Option<f64>) -> bool {
    coverage.is_some_and(|coverage| coverage >= COVERAGE_ABSENT_BELOW)
}

/// A value over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ValueRange {
    /// The share of the time that readings of this value stand for.
    pub coverage: Option<f64>,
    /// The least value that was seen, with any coverage.
    pub min: Option<f64>,
    /// The mean, weighted by time; `None` below half coverage.
    pub mean: Option<f64>,
    /// The greatest value that was seen.
    pub max: Option<f64>,
}

/// Figures of a GPU over a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for; `None` if the time is unknown.
    pub coverage: Option<f64>,
    /// Whether the coverage is too low for figures of the whole time: below 90 %.
    pub partial: bool,
    /// The values by the columns of the log, in their units. One that the driver never gave is not there. The mean of a condition is
    /// the share of the time in which it held: `hot`, `hot_memory`, `throttled`, `severe` (heat or the power
    /// supply held the clocks down), and `throttle_` with each reason.
    pub values: BTreeMap<String, ValueRange>,
}

impl Figures {
    /// Returns the mean of a value.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.mean
    }

    /// Returns the greatest value.
    pub(crate) fn max(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.max
    }

    /// Returns the mean of a percentage as a share.
    pub(crate) fn share(&self, name: &str) -> Option<f64> {
        Some(self.mean(name)? / 100.0)
    }
}

/// All values of a GPU over one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) readings: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    named: BTreeMap<Cow<'static, str>, Mean>,
}

impl Values {
    /// Adds the part `us` of a reading, in which so many runs were at work on the GPU.
    fn add(&mut self, values: &RowValues, us: i64, runs: usize) {
        self.us = self.us.saturating_add(us);
        let shared_us = if runs > 1 { us } else { 0 };
        self.shared_us = self.shared_us.saturating_add(shared_us);
        for (name, value) in values {
            let parts = if name == OWN_W { runs.max(1) } else { 1 };
            if self.named.len() < MAX_NAMES || self.named.contains_key(name) {
                let known = self.named.entry(name.clone()).or_default();
                known.add_weighted(value / parts as f64, us);
            }
        }
    }

    /// Returns the sums over one value.
    pub(super) fn of(&self, name: &str) -> Mean {
        self.named.get(name).copied().unwrap_or_default()
    }

    /// Returns the figures over a time; of one with too few readings, only their number and their coverage.
    pub(super) fn figures(&self, time_us: i64) -> Figures {
        let covered = coverage(self.us, time_us);
        let named = self.named.iter().filter(|(name, _)| *name != OWN_W);
        let named = named.filter(|_| self.is_enough());
        let values = named.map(|(name, value)| {
            // A reason that is not named did not hold the clocks down.
            let known_us = match name.strip_prefix(REASON) {
                Some(_) => self.of("throttled").weight(),
                None => value.weight(),
            };
            let coverage = coverage(known_us, time_us);
            // A quotient of sums is exact for conditions.
            let mean = match value.max() {
                Some(1.0) => Some(value.sum() / known_us as f64),
                _ => value.mean(),
            };
            let range = ValueRange {
                coverage,
                min: value.min(),
                mean: mean.filter(|_| is_enough(coverage)),
                max: value.max(),
            };
            (name.to_string(), range)
        });
        Figures {
            samples: self.readings,
            coverage: covered,
            partial: covered.is_some_and(|covered| covered < COVERAGE_MARKED_BELOW),
            values: values.collect(),
        }
    }

    /// Whether there are enough readings for figures: one that is longer than a run tells of the time around it.
    pub(super) fn is_enough(&self) -> bool {
        self.readings >= RUN_MIN_READINGS
    }

    /// Returns the energy of a run over its time in joules: what was seen, scaled to the time. `None` below half coverage.
    pub(super) fn energy_j(&self, time_us: i64) -> Option<f64> {
        let own = self.of(OWN_W);
        let coverage = coverage(own.weight(), time_us);
        let is_told = is_enough(coverage) && self.is_enough();
        let part = coverage.filter(|_| is_told)?;
        Some(own.sum() / 1e6 / part)
    }
}

/// The values of a GPU over several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// Over the runs that used the GPU, or over all runs if none did; without runs, over the recording.
    pub(super) all: Values,
    /// Over each run, by its position.
    pub(super) runs: BTreeMap<usize, Values>,
}

impl Readings {
    /// Adds a reading, by the parts of its time. `are_own` tells that their runs are those on this device.
    pub(super) fn add(&mut self, values: &RowValues, parts: &[Part], are_own: bool) {
        self.all.readings += u64::from(!parts.is_empty());
        let mut seen = BTreeSet::new();
        for (us, runs) in parts {
            let own = if are_own { runs.len() } else { 0 };
            self.all.add(values, *us, own);
            for &run in runs.iter().take(own) {
                let of_run = self.runs.entry(run).or_default();
                of_run.readings += u64::from(seen.insert(run));
                of_run.add(values, *us, own);
            }
        }
    }
}

/// Returns the power of a reading that stands for `us`. `before_j` is the counter of the previous reading. A counter that stays at 0
/// is none: the power of the reading counts. Of a driver that was reloaded, and counts from 0, and of a jump beyond all GPUs
/// nothing is known.
pub(super) fn energy_w(sample: &GpuSample, us: i64, before_j: Option<f64>) -> Option<f64> {
    let counters = sample.energy_j.zip(before_j);
    let Some((now_j, before_j)) = counters.filter(|(now_j, before_j)| now_j.max(*before_j) > 0.0)
    else {
        return sample
            .power_w
            .filter(|&watts| watts <= POWER_POSSIBLE_UP_TO_W);
    };
    let joules = now_j - before_j;
    // A short interval may have the energy of those before it.
    let possible_j = POWER_POSSIBLE_UP_TO_W * seconds(us).max(1.0);
    let is_possible = us > 0 && (0.0..=possible_j).contains(&joules);
    is_possible.then(|| joules / seconds(us))
}
