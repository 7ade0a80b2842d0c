//! Figures of one GPU over some of its readings.

use std::array;

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::coverage::{coverage, is_enough, is_partial};
use super::energy::{EnergyCount, Reading};
use super::throttle_count::ThrottleCount;
use super::value_count::{TimedMean, ValueCount, ValueRange};

/// The values of a GPU over time. `None` for a value that the driver does not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuValues {
    /// Share of the time in which a kernel ran.
    pub utilization: Option<ValueRange>,
    /// Power draw of the board.
    pub power_w: Option<ValueRange>,
    /// Clock of the streaming multiprocessors.
    pub sm_clock_mhz: Option<ValueRange>,
    /// Clock of the device memory.
    pub mem_clock_mhz: Option<ValueRange>,
    /// Temperature of the chip.
    pub temperature_c: Option<ValueRange>,
    /// Device memory in use.
    pub mem_used_mib: Option<ValueRange>,
}

/// Reads a value of a GPU.
type Value = fn(&GpuSample) -> Option<f64>;

/// The values of [`GpuValues`] in their order: name, unit, and the value.
#[rustfmt::skip]
const VALUES: [(&str, f64, Value); 6] = [
    ("utilization", 100.0, |sample| sample.gpu_util.map(f64::from)),
    ("power", 1.0, |sample| sample.power_w),
    ("SM clock", 1.0, |sample| sample.sm_clock_mhz.map(f64::from)),
    ("memory clock", 1.0, |sample| sample.mem_clock_mhz.map(f64::from)),
    ("temperature", 1.0, |sample| sample.temperature_c.map(f64::from)),
    ("memory in use", 1.0, |sample| sample.mem_used_mib.map(|mib| mib as f64)),
];

/// Values that have a mean only, and their units: activity of the SMs, of the tensor cores and of the memory, whether it is
/// hot, whether foreign processes are on it, and whether its memory is hot.
#[rustfmt::skip]
const SHARES: [(f64, Value); 6] = [
    (100.0, |sample| sample.sm_active),
    (100.0, |sample| sample.tensor_active),
    (100.0, |sample| sample.dram_active),
    (1.0, |sample| Some(truth(sample.temperature_c? > sample.hot_above_c()))),
    (1.0, |sample| Some(truth(sample.foreign_processes? > 0))),
    (1.0, |sample| Some(truth(sample.mem_temperature_c? >= sample.mem_temperature_limit_c?))),
];

fn truth(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}

/// Sums over readings of one GPU, weighted by the time that they stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuCount {
    pub(super) readings: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    /// Of [`VALUES`].
    values: [ValueCount; VALUES.len()],
    /// Of [`SHARES`].
    shares: [TimedMean; SHARES.len()],
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
        for (count, (.., value)) in self.values.iter_mut().zip(VALUES) {
            count.add(value(sample), us);
        }
        for (mean, (_, value)) in self.shares.iter_mut().zip(SHARES) {
            mean.add(value(sample), us);
        }
        if let Some(throttle) = &sample.throttle {
            self.throttling.add(throttle, us);
        }
        self.energy.add(reading, us, runs);
    }

    /// Returns the readings of the utilisation.
    pub(super) fn utilization_readings(&self) -> u64 {
        self.values[0].mean.readings
    }

    /// Returns the mean of the utilisation over a time, 0 to 1, if it is known for enough of it.
    pub(super) fn mean_utilization(&self, time_us: i64) -> Option<f64> {
        Some(self.values[0].mean.mean(time_us)? / VALUES[0].1)
    }

    /// Returns the greatest memory in use and temperature, with any coverage.
    pub(super) fn greatest(&self) -> (Option<f64>, Option<f64>) {
        let [.., temperature_c, mem_used_mib] = &self.values;
        (mem_used_mib.max(), temperature_c.max())
    }

    /// Returns the means of [`SHARES`] over a time.
    pub(super) fn shares(&self, time_us: i64) -> [Option<f64>; SHARES.len()] {
        array::from_fn(|place| Some(self.shares[place].mean(time_us)? / SHARES[place].0))
    }

    /// Returns the values over a time.
    pub(super) fn values(&self, time_us: i64) -> GpuValues {
        let of = |place: usize| self.values[place].range(time_us, VALUES[place].1);
        GpuValues {
            utilization: of(0),
            power_w: of(1),
            sm_clock_mhz: of(2),
            mem_clock_mhz: of(3),
            temperature_c: of(4),
            mem_used_mib: of(5),
        }
    }

    /// Returns the values that were seen for less of the time than the GPU itself, as far as it matters.
    pub(super) fn less_covered(&self, time_us: i64) -> Vec<(&'static str, f64)> {
        let judged = |coverage| (is_partial(coverage), is_enough(coverage));
        let of_gpu = judged(coverage(self.us, time_us));
        let values = self.values.iter().zip(VALUES);
        let known = values.filter_map(|(count, (name, ..))| {
            let of_value = (count.mean.us > 0).then(|| coverage(count.mean.us, time_us))?;
            (judged(of_value) != of_gpu).then_some((name, of_value?))
        });
        known.collect()
    }
}
