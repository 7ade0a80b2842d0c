//! Figures of one GPU over some of its readings.

use std::array;
use std::collections::BTreeMap;

use plmkit_logs::{GpuSample, METRICS, Metric};

use super::coverage::{coverage, is_enough, is_partial};
use super::energy::{EnergyCount, Reading};
use super::throttle_count::ThrottleCount;
use super::value_count::{TimedMean, ValueCount, ValueRange};

/// The values of a GPU over time, by the columns of the log and in their units. One that the driver never gave is not there.
pub type GpuValues = BTreeMap<&'static str, ValueRange>;

/// Conditions, as shares of the time: whether it is hot, whether foreign processes are on it, and whether its memory is hot.
#[rustfmt::skip]
const CONDITIONS: [fn(&GpuSample) -> Option<bool>; 3] = [
    |sample| Some(sample.temperature_c? > sample.hot_above_c()),
    |sample| Some(sample.foreign_processes? > 0),
    |sample| Some(sample.mem_temperature_c? >= sample.mem_temperature_limit_c?),
];

/// Sums over readings of one GPU, weighted by the time that they stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuCount {
    pub(super) readings: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    /// Of the metrics in reports, by their columns.
    values: BTreeMap<&'static str, ValueCount>,
    /// Of [`CONDITIONS`].
    conditions: [TimedMean; CONDITIONS.len()],
    pub(super) throttling: ThrottleCount,
    pub(super) energy: EnergyCount,
}

impl GpuCount {
    /// Adds a reading that stands for `us`, in which so many runs were at work on the GPU.
    pub(super) fn add(&mut self, reading: &Reading, us: i64, runs: usize) {
        if us == 0 {
            return;
        }
        let sample = reading.sample;
        self.us = self.us.saturating_add(us);
        let shared_us = if runs > 1 { us } else { 0 };
        self.shared_us = self.shared_us.saturating_add(shared_us);
        for metric in METRICS.iter().filter(|metric| metric.in_reports) {
            if let Some(value) = (metric.value)(sample) {
                let count = self.values.entry(metric.column).or_default();
                count.add(value, us);
            }
        }
        for (mean, condition) in self.conditions.iter_mut().zip(CONDITIONS) {
            if let Some(is_true) = condition(sample) {
                mean.add(f64::from(u8::from(is_true)), us);
            }
        }
        if let Some(throttle) = &sample.throttle {
            self.throttling.add(throttle, us);
        }
        self.energy.add(reading, us, runs);
    }

    /// Returns the readings of the utilisation.
    pub(super) fn utilization_readings(&self) -> u64 {
        let count = self.values.get("gpu_util");
        count.map_or(0, |count| count.mean.readings)
    }

    /// Returns the mean of the utilisation over a time, 0 to 1, if it is known for enough of it.
    pub(super) fn mean_utilization(&self, time_us: i64) -> Option<f64> {
        Some(self.values.get("gpu_util")?.mean.mean(time_us)? / 100.0)
    }

    /// Returns the greatest value of a column, with any coverage.
    pub(super) fn greatest(&self, column: &str) -> Option<f64> {
        Some(self.values.get(column)?.max())
    }

    /// Returns the means of [`CONDITIONS`] over a time.
    pub(super) fn conditions(&self, time_us: i64) -> [Option<f64>; CONDITIONS.len()] {
        array::from_fn(|place| self.conditions[place].mean(time_us))
    }

    /// Returns the values over a time.
    pub(super) fn values(&self, time_us: i64) -> GpuValues {
        let values = self.values.iter();
        let values = values.map(|(&column, count)| (column, count.range(time_us)));
        values.collect()
    }

    /// Returns the values that were seen for less of the time than the GPU itself, as far as it matters.
    pub(super) fn less_covered(&self, time_us: i64) -> Vec<(&'static str, f64)> {
        let judged = |coverage| (is_partial(coverage), is_enough(coverage));
        let of_gpu = judged(coverage(self.us, time_us));
        let known = self.values.iter().filter_map(|(column, count)| {
            let of_value = coverage(count.mean.us, time_us);
            let name = Metric::of(column)?.name;
            (judged(of_value) != of_gpu).then_some((name, of_value?))
        });
        known.collect()
    }
}
