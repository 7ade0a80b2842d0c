//! Figures of one GPU over some of its readings.

use serde::Serialize;

use super::coverage::{is_enough, is_partial};
use super::energy::{EnergyCount, Reading};
use super::throttle_count::ThrottleCount;
use super::value_count::{ROUNDED, TimeDistribution, TimedMean, ValueCount, WHOLE};

/// Distributions of the values of a GPU over time. `None` for a value that the driver does not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GpuDistributions {
    /// Share of the time in which a kernel ran.
    pub utilization: Option<TimeDistribution>,
    /// Power draw of the board.
    pub power_w: Option<TimeDistribution>,
    /// Clock of the streaming multiprocessors.
    pub sm_clock_mhz: Option<TimeDistribution>,
    /// Clock of the device memory.
    pub mem_clock_mhz: Option<TimeDistribution>,
    /// Temperature of the chip.
    pub temperature_c: Option<TimeDistribution>,
    /// Device memory in use.
    pub mem_used_mib: Option<TimeDistribution>,
}

impl GpuDistributions {
    /// Returns the values that were seen for less of the time than the GPU itself, as far as it matters.
    pub(super) fn less_covered(&self, gpu: Option<f64>) -> Vec<(&'static str, f64)> {
        let judged = |coverage| (is_partial(coverage), is_enough(coverage));
        let all = [
            ("utilization", self.utilization),
            ("power", self.power_w),
            ("SM clock", self.sm_clock_mhz),
            ("memory clock", self.mem_clock_mhz),
            ("temperature", self.temperature_c),
            ("memory in use", self.mem_used_mib),
        ];
        let known = all.into_iter().filter_map(|(name, value)| {
            let coverage = value?.coverage;
            (judged(coverage) != judged(gpu)).then_some((name, coverage?))
        });
        known.collect()
    }
}

/// Sums over readings of one GPU, weighted by the time that they stand for.
#[derive(Clone, Debug)]
pub(super) struct GpuCount {
    pub(super) readings: u64,
    /// The time that readings stand for.
    pub(super) us: i64,
    /// The part of it in which several runs were at work on the GPU.
    pub(super) shared_us: i64,
    /// In percent, as all shares here.
    pub(super) utilization: ValueCount,
    pub(super) sm_active: TimedMean,
    pub(super) tensor_active: TimedMean,
    pub(super) dram_active: TimedMean,
    pub(super) mem_used_mib: ValueCount,
    pub(super) temperature_c: ValueCount,
    power_w: ValueCount,
    sm_clock_mhz: ValueCount,
    mem_clock_mhz: ValueCount,
    pub(super) hot: TimedMean,
    pub(super) foreign: TimedMean,
    pub(super) throttling: ThrottleCount,
    pub(super) energy: EnergyCount,
}

impl Default for GpuCount {
    fn default() -> Self {
        let [whole, rounded] = [WHOLE, ROUNDED].map(|bits| move || ValueCount::new(bits));
        Self {
            readings: 0,
            us: 0,
            shared_us: 0,
            utilization: whole(),
            sm_active: TimedMean::default(),
            tensor_active: TimedMean::default(),
            dram_active: TimedMean::default(),
            mem_used_mib: rounded(),
            temperature_c: whole(),
            power_w: rounded(),
            sm_clock_mhz: whole(),
            mem_clock_mhz: whole(),
            hot: TimedMean::default(),
            foreign: TimedMean::default(),
            throttling: ThrottleCount::default(),
            energy: EnergyCount::default(),
        }
    }
}

impl GpuCount {
    /// Adds a reading that stands for `us`, in which so many runs were at work on the GPU.
    pub(super) fn add(&mut self, reading: &Reading, us: i64, runs: usize) {
        let sample = reading.sample;
        self.us += us;
        self.shared_us += if runs > 1 { us } else { 0 };
        for (count, value) in [
            (&mut self.utilization, sample.gpu_util.map(f64::from)),
            (&mut self.temperature_c, sample.temperature_c.map(f64::from)),
            (&mut self.power_w, sample.power_w),
            (&mut self.sm_clock_mhz, sample.sm_clock_mhz.map(f64::from)),
            (&mut self.mem_clock_mhz, sample.mem_clock_mhz.map(f64::from)),
            (
                &mut self.mem_used_mib,
                sample.mem_used_mib.map(|mib| mib as f64),
            ),
        ] {
            if let Some(value) = value {
                count.add(value, us);
            }
        }
        let truth = |is_true: bool| f64::from(u8::from(is_true));
        let is_hot = |celsius: u32| truth(celsius > sample.hot_above_c());
        for (mean, value) in [
            (&mut self.sm_active, sample.sm_active),
            (&mut self.tensor_active, sample.tensor_active),
            (&mut self.dram_active, sample.dram_active),
            (&mut self.hot, sample.temperature_c.map(is_hot)),
            (
                &mut self.foreign,
                sample.foreign_processes.map(|count| truth(count > 0)),
            ),
        ] {
            if let Some(value) = value {
                mean.add(value, us);
            }
        }
        if let Some(throttle) = &sample.throttle {
            self.throttling.add(throttle, us);
        }
        self.energy.add(reading, us, runs);
    }

    /// Returns the mean of the utilisation over a time, 0 to 1, if it is known for enough of it.
    pub(super) fn mean_utilization(&self, time_us: i64) -> Option<f64> {
        self.utilization
            .mean
            .mean(time_us)
            .map(|percent| percent / 100.0)
    }

    pub(super) fn distributions(&self, time_us: i64) -> GpuDistributions {
        let utilization = self.utilization.distribution(time_us);
        let share = |percent: Option<f64>| percent.map(|percent| percent / 100.0);
        GpuDistributions {
            utilization: utilization.map(|found| TimeDistribution {
                coverage: found.coverage,
                min: share(found.min),
                p5: share(found.p5),
                p50: share(found.p50),
                p95: share(found.p95),
                max: share(found.max),
            }),
            power_w: self.power_w.distribution(time_us),
            sm_clock_mhz: self.sm_clock_mhz.distribution(time_us),
            mem_clock_mhz: self.mem_clock_mhz.distribution(time_us),
            temperature_c: self.temperature_c.distribution(time_us),
            mem_used_mib: self.mem_used_mib.distribution(time_us),
        }
    }
}
