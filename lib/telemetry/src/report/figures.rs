//! Figures of a GPU over a time.

use std::collections::BTreeMap;

use plmkit_logs::thresholds::{COVERAGE_ABSENT_BELOW, POSSIBLE_W, RUN_MIN_READINGS};
use plmkit_logs::{GpuSample, METRICS};
use serde::Serialize;

use super::moments::seconds;
use super::share;

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

/// Whether a figure with this coverage may be shown.
pub(super) fn is_enough(coverage: Option<f64>) -> bool {
    coverage.is_some_and(|coverage| coverage >= COVERAGE_ABSENT_BELOW)
}

/// A value over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuFigure {
    /// The mean, weighted by time; `None` if it was measured for less than half of the time.
    pub mean: Option<f64>,
    /// The greatest value that was seen.
    pub max: f64,
}

/// Figures of a GPU over a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuFigures {
    /// Readings that stand for a part of the time.
    pub samples: u64,
    /// The share of the time that readings stand for; `None` if the time is unknown.
    pub coverage: Option<f64>,
    /// The energy over the time in joules: what was seen, scaled to the time. `None` if less than half was seen, and over a run that
    /// shared the GPU with another one.
    pub energy_j: Option<f64>,
    /// The values by the columns of the log, in their units. One that the driver never gave is not there. The mean of a condition is
    /// the share of the time in which it held: `hot`, `hot_memory`, `throttled`, `severe` (heat or the power supply held the clocks down), and
    /// `throttle_` with each reason that ever held.
    pub values: BTreeMap<&'static str, GpuFigure>,
}

impl GpuFigures {
    /// Returns the mean of a value.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.mean
    }

    /// Returns the greatest value.
    pub(crate) fn max(&self, name: &str) -> Option<f64> {
        Some(self.values.get(name)?.max)
    }

    /// Returns the mean of a percentage as a share.
    pub(crate) fn share(&self, name: &str) -> Option<f64> {
        Some(self.mean(name)? / 100.0)
    }
}

/// A value, summed over time.
#[derive(Clone, Copy, Debug, Default)]
struct Weighted {
    /// The time that the values stand for, in microseconds.
    us: i64,
    /// The values, each times its microseconds.
    sum: f64,
    max: f64,
}

impl Weighted {
    fn add(&mut self, value: f64, us: i64) {
        self.us = self.us.saturating_add(us);
        self.sum += value * us as f64;
        self.max = self.max.max(value);
    }

    /// Returns the mean, if the values stand for half of the time.
    fn mean(&self, time_us: i64) -> Option<f64> {
        let known = Some(self.us).filter(|&us| is_enough(coverage(us, time_us)))?;
        share(self.sum, known as f64)
    }
}

/// Returns the share of `time_us` that `covered_us` is; `None` if the time is unknown.
fn coverage(covered_us: i64, time_us: i64) -> Option<f64> {
    share(covered_us as f64, time_us as f64).map(|share| share.min(1.0))
}

/// All values of a GPU, summed over one time.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuSums {
    pub(super) readings: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// Power by the energy counter, or else by the reading.
    power_w: Weighted,
    named: BTreeMap<&'static str, Weighted>,
}

impl GpuSums {
    /// Adds a reading that stands for `us`.
    pub(super) fn add(&mut self, values: &[(&'static str, f64)], power_w: Option<f64>, us: i64) {
        self.readings += 1;
        self.us = self.us.saturating_add(us);
        if let Some(power_w) = power_w {
            self.power_w.add(power_w, us);
        }
        for &(name, value) in values {
            self.named.entry(name).or_default().add(value, us);
        }
    }

    /// Returns the figures over a time; of one with too few readings, only their number and their coverage.
    pub(super) fn figures(&self, time_us: i64) -> GpuFigures {
        let coverage = coverage(self.us, time_us);
        if !self.is_enough() {
            return GpuFigures {
                samples: self.readings,
                coverage,
                ..GpuFigures::default()
            };
        }
        let named = self.named.iter();
        let named = named.filter(|(name, value)| value.max > 0.0 || !name.starts_with(REASON));
        let values = named.map(|(&name, value)| {
            let figure = GpuFigure {
                mean: value.mean(time_us),
                max: value.max,
            };
            (name, figure)
        });
        let power_w = self.power_w.mean(time_us);
        GpuFigures {
            samples: self.readings,
            coverage,
            energy_j: power_w.map(|power_w| power_w * seconds(time_us)),
            values: values.collect(),
        }
    }

    /// Whether there are enough readings for figures: one that is longer than a run tells of the time around it.
    pub(super) fn is_enough(&self) -> bool {
        self.readings >= RUN_MIN_READINGS
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
