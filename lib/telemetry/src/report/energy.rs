//! Energy of a GPU, from its counter or from readings of its power.

use serde::Serialize;

use super::coverage::{coverage, is_enough};
use super::reading::Reading;
use super::time_span::seconds;

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

/// The energy of one GPU over some readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EnergyCount {
    us: i64,
    joules: f64,
    /// With equal parts for all runs at work.
    own_j: f64,
}

impl EnergyCount {
    /// Adds the part of a reading that stands for `us`, in which so many runs were at work on the GPU.
    pub(super) fn add(&mut self, reading: &Reading, us: i64, runs: usize) {
        let Some(joules) = reading.joules else { return };
        let joules = joules * (us as f64 / reading.us as f64);
        self.us = self.us.saturating_add(us);
        self.joules += joules;
        self.own_j += joules / runs.max(1) as f64;
    }

    /// Returns the mean power in watts, if it was seen for enough of the time.
    pub(super) fn mean_w(&self, time_us: i64) -> Option<f64> {
        let enough = self.us > 0 && is_enough(coverage(self.us, time_us));
        enough.then(|| self.joules / seconds(self.us))
    }

    /// Returns the energy over a time.
    pub(super) fn finish(&self, time_us: i64) -> Energy {
        let coverage = coverage(self.us, time_us);
        let measured_j = (self.us > 0).then_some(self.own_j);
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
    use plmkit_logs::GpuSample;

    use super::*;

    /// Readings of a second each, by the counter and by a power of 7 W.
    fn count(counters: &[Option<f64>], runs: usize) -> EnergyCount {
        let mut count = EnergyCount::default();
        for pair in counters.windows(2) {
            let sample = GpuSample {
                energy_j: pair[1],
                power_w: Some(7.0),
                ..GpuSample::default()
            };
            let reading = Reading::of_gpu(&sample, 1_000_000, pair[0], 100.0);
            count.add(&reading, 1_000_000, runs);
        }
        count
    }

    #[test]
    fn the_counter_comes_before_the_power_where_it_is_there_and_does_not_stay_at_0() {
        let mean_w = |counters: &[Option<f64>]| count(counters, 1).mean_w(2_000_000);
        assert_eq!(mean_w(&[Some(0.0), Some(10.0), Some(40.0)]), Some(20.0));
        assert_eq!(mean_w(&[Some(5.0), Some(15.0), None]), Some(8.5));
        assert_eq!(mean_w(&[Some(0.0), Some(0.0), Some(0.0)]), Some(7.0));
        assert_eq!(mean_w(&[None, None, None]), Some(7.0));
        // It fell, and it rose by more than the board can draw.
        assert_eq!(mean_w(&[Some(15.0), Some(5.0), Some(9.0)]), Some(4.0));
        assert_eq!(mean_w(&[Some(5.0), Some(205.0), Some(209.0)]), Some(4.0));
    }

    #[test]
    fn energy_is_scaled_to_the_time_and_absent_below_half() {
        let figures = |time_s: i64| {
            let counters = [Some(5.0), Some(15.0), Some(45.0)];
            let energy = count(&counters, 1).finish(time_s * 1_000_000);
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
        let shared = count(&[Some(5.0), Some(15.0), Some(45.0)], 2);
        assert_eq!(shared.finish(2_000_000).total_j, Some(20.0));
        assert_eq!(shared.mean_w(2_000_000), Some(20.0));
    }
}
