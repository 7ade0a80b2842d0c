//! Energy of a GPU, from its counter or from readings of its power.

use plmkit_logs::GpuSample;
use serde::Serialize;

use super::coverage::{coverage, is_enough};
use super::time_span::seconds;

/// The energy of a GPU over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Energy {
    /// The share of the run's time whose energy was seen.
    pub coverage: Option<f64>,
    /// Joules that were seen. Where several runs computed on the GPU at one time, each has an equal part.
    pub measured_j: Option<f64>,
    /// `measured_j` over its coverage: scaled to the run's time. `None` below half coverage.
    pub total_j: Option<f64>,
}

/// A reading, and the time since the previous one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) sample: &'a GpuSample,
    /// The time since the previous reading.
    pub(super) us: i64,
    /// Joules in that time by the counter; `None` if the GPU has no counter, or if its driver was reloaded meanwhile.
    pub(super) counted_j: Option<f64>,
}

/// Sums over the time with known energy.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    us: i64,
    joules: f64,
    /// With equal parts for all runs at work.
    own_j: f64,
}

impl Sum {
    fn add(&mut self, joules: f64, us: i64, runs: usize) {
        self.us += us;
        self.joules += joules;
        self.own_j += joules / runs.max(1) as f64;
    }
}

/// The energy of one GPU over some readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EnergyCount {
    counted: Sum,
    from_power: Sum,
}

impl EnergyCount {
    /// Adds the part of a reading that stands for `us`, in which so many runs were at work on the GPU.
    pub(super) fn add(&mut self, reading: &Reading, us: i64, runs: usize) {
        if let Some(counted_j) = reading.counted_j {
            let part = us as f64 / reading.us as f64;
            self.counted.add(counted_j * part, us, runs);
        }
        if let Some(watts) = reading.sample.power_w {
            self.from_power.add(watts * seconds(us), us, runs);
        }
    }

    /// The counter covers the time between readings; power is read at moments. A counter that stays at 0 is none.
    fn best(&self) -> &Sum {
        if self.counted.joules > 0.0 {
            &self.counted
        } else {
            &self.from_power
        }
    }

    /// Returns the mean power in watts, if it was seen for enough of the time.
    pub(super) fn mean_w(&self, time_us: i64) -> Option<f64> {
        let sum = self.best();
        let enough = sum.us > 0 && is_enough(coverage(sum.us, time_us));
        enough.then(|| sum.joules / seconds(sum.us))
    }

    /// Returns the energy over a time.
    pub(super) fn finish(&self, time_us: i64) -> Energy {
        let sum = self.best();
        let coverage = coverage(sum.us, time_us);
        let measured_j = (sum.us > 0).then_some(sum.own_j);
        let enough = coverage.filter(|_| is_enough(coverage));
        Energy {
            coverage,
            measured_j,
            total_j: measured_j.zip(enough).map(|(joules, part)| joules / part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of a second each, by the counter and by a power of 7 W.
    fn count(counted_j: &[Option<f64>], runs: usize) -> EnergyCount {
        let sample = GpuSample {
            power_w: Some(7.0),
            ..GpuSample::default()
        };
        let mut count = EnergyCount::default();
        for &counted_j in counted_j {
            let reading = Reading {
                sample: &sample,
                us: 1_000_000,
                counted_j,
            };
            count.add(&reading, 1_000_000, runs);
        }
        count
    }

    #[test]
    fn the_counter_comes_before_the_power_unless_it_stays_at_0() {
        let mean_w = |counted_j: &[Option<f64>]| count(counted_j, 1).mean_w(2_000_000);
        assert_eq!(mean_w(&[Some(10.0), Some(30.0)]), Some(20.0));
        assert_eq!(mean_w(&[Some(10.0), None]), Some(10.0));
        assert_eq!(mean_w(&[Some(0.0), Some(0.0)]), Some(7.0));
        assert_eq!(mean_w(&[None, None]), Some(7.0));
    }

    #[test]
    fn energy_is_scaled_to_the_time_and_absent_below_half() {
        let figures = |time_s: i64| {
            let energy = count(&[Some(10.0), Some(30.0)], 1).finish(time_s * 1_000_000);
            (energy.coverage, energy.measured_j, energy.total_j)
        };
        assert_eq!(figures(2), (Some(1.0), Some(40.0), Some(40.0)));
        assert_eq!(figures(4), (Some(0.5), Some(40.0), Some(80.0)));
        assert_eq!(figures(5), (Some(0.4), Some(40.0), None));
        assert_eq!(figures(0), (None, Some(40.0), None));
        assert_eq!(
            EnergyCount::default().finish(5),
            Energy {
                coverage: Some(0.0),
                ..Energy::default()
            }
        );
    }

    #[test]
    fn runs_at_one_time_have_equal_parts_of_the_energy_and_the_same_power() {
        let shared = count(&[Some(10.0), Some(30.0)], 2);
        assert_eq!(shared.finish(2_000_000).total_j, Some(20.0));
        assert_eq!(shared.mean_w(2_000_000), Some(20.0));
    }
}
