//! Values of a GPU over time.

use std::collections::BTreeMap;

use plmkit_logs::thresholds::{
    COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW, POSSIBLE_W, RUN_MIN_READINGS,
};
use plmkit_logs::{GpuSample, METRICS, Mean};
use serde::Serialize;

use super::moments::{Moment, seconds};

/// The start of the name of a reason that holds the clocks down.
pub(super) const REASON: &str = "throttle_";

/// The driver's reasons. Others of a log count for `throttled` alone.
const REASONS: [&str; 8] = [
    "throttle_applications_clocks_setting",
    "throttle_display_clock_setting",
    "throttle_hw_power_brake_slowdown",
    "throttle_hw_slowdown",
    "throttle_hw_thermal_slowdown",
    "throttle_sw_power_cap",
    "throttle_sw_thermal_slowdown",
    "throttle_sync_boost",
];

/// Returns the values that a row has of its GPU. A condition is 0 or 1: its mean is the share of the time.
pub(super) fn gpu_values(sample: &GpuSample) -> Vec<(&'static str, f64)> {
    let metrics = METRICS.iter().filter(|metric| metric.in_reports);
    let metrics = metrics.filter_map(|metric| Some((metric.column, (metric.value)(sample)?)));
    let mut values = Vec::with_capacity(2 * METRICS.len());
    values.extend(
        metrics.filter(|(column, value)| *column != "power_w" || POSSIBLE_W.contains(value)),
    );
    let is_hot = |celsius: u32| f64::from(celsius > sample.hot_above_c());
    values.extend(sample.temperature_c.map(|celsius| ("hot", is_hot(celsius))));
    let memory = sample.mem_temperature_c.zip(sample.mem_temperature_limit_c);
    values.extend(memory.map(|(celsius, limit)| ("hot_memory", f64::from(celsius >= limit))));
    if let Some(throttle) = &sample.throttle {
        values.push(("throttled", f64::from(throttle.active())));
        values.push(("severe", f64::from(throttle.is_severe())));
        values.extend(REASONS.map(|name| {
            let mut reasons = throttle.0.iter();
            let holds = reasons.any(|reason| name.strip_prefix(REASON) == Some(reason.as_str()));
            (name, f64::from(holds))
        }));
    }
    values
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
    /// the share of the time in which it held: `hot`, `hot_memory`, `throttled`, `severe` (heat or the power supply held the clocks down), and
    /// `throttle_` with each reason that ever held.
    pub values: BTreeMap<&'static str, ValueRange>,
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
    last: Option<Moment>,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    /// Power by the energy counter, or else by the reading, of which several runs have equal parts.
    own_w: Mean,
    named: BTreeMap<&'static str, Mean>,
}

impl Values {
    /// Adds the part `us` of the reading at a moment, in which so many runs were at work on the GPU.
    pub(super) fn add(
        &mut self,
        at: Moment,
        values: &[(&'static str, f64)],
        power_w: Option<f64>,
        us: i64,
        runs: usize,
    ) {
        self.readings += u64::from(self.last.replace(at) != Some(at));
        self.us = self.us.saturating_add(us);
        let shared_us = if runs > 1 { us } else { 0 };
        self.shared_us = self.shared_us.saturating_add(shared_us);
        if let Some(power_w) = power_w {
            self.own_w.add_weighted(power_w / runs.max(1) as f64, us);
        }
        for &(name, value) in values {
            self.named.entry(name).or_default().add_weighted(value, us);
        }
    }

    /// Returns how many readings have a value.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.named.get(name).map_or(0, |value| value.count)
    }

    /// Returns the figures over a time; of one with too few readings, only their number and their coverage.
    pub(super) fn figures(&self, time_us: i64) -> Figures {
        let covered = coverage(self.us, time_us);
        let named = self.named.iter().filter(|_| self.is_enough());
        let named =
            named.filter(|(name, value)| value.max > Some(0.0) || !name.starts_with(REASON));
        let values = named.map(|(&name, value)| {
            let coverage = coverage(value.weight, time_us);
            // A quotient of sums is exact for conditions.
            let mean = match value.max {
                Some(1.0) => Some(value.sum / value.weight as f64),
                _ => value.mean(),
            };
            let range = ValueRange {
                coverage,
                min: value.min,
                mean: mean.filter(|_| is_enough(coverage)),
                max: value.max,
            };
            (name, range)
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
        let coverage = coverage(self.own_w.weight, time_us);
        let is_told = is_enough(coverage) && self.is_enough();
        let part = coverage.filter(|_| is_told)?;
        Some(self.own_w.sum / 1e6 / part)
    }
}

/// Returns the power of a reading that stands for `us`. `before_j` is the counter of the previous reading. A counter that stays at 0
/// is none: the power of the reading counts. Of a driver that was reloaded, and counts from 0, and of a jump beyond all GPUs
/// nothing is known.
pub(super) fn energy_w(sample: &GpuSample, us: i64, before_j: Option<f64>) -> Option<f64> {
    let counters = sample.energy_j.zip(before_j);
    let Some((now_j, before_j)) = counters.filter(|(now_j, before_j)| now_j.max(*before_j) > 0.0)
    else {
        return sample.power_w.filter(|watts| POSSIBLE_W.contains(watts));
    };
    let joules = now_j - before_j;
    // A short interval may have the energy of those before it.
    let possible_j = POSSIBLE_W.end() * seconds(us).max(1.0);
    let is_possible = us > 0 && (0.0..=possible_j).contains(&joules);
    is_possible.then(|| joules / seconds(us))
}
