//! Power, from a counter of energy and from samples.

use super::mean::Mean;
use crate::GpuSample;

/// The power of one GPU over samples that follow one another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Energy {
    /// Of the sample before, where it says both: seconds of the recording, joules since the driver was loaded.
    last: Option<(f64, f64)>,
    counted_s: f64,
    counted_j: f64,
    power_w: Mean,
}

impl Energy {
    pub(super) fn add(&mut self, sample: &GpuSample) {
        if let Some(watts) = sample.power_w {
            self.power_w.add(watts);
        }
        let now = sample.elapsed_s.zip(sample.energy_j);
        if let Some(((from_s, from_j), (to_s, to_j))) = self.last.zip(now) {
            // Another recording begins at 0, and the counter does with another driver.
            if to_s > from_s && to_j >= from_j {
                self.counted_s += to_s - from_s;
                self.counted_j += to_j - from_j;
            }
        }
        self.last = now.or(self.last);
    }

    /// Takes in what another stretch of time says.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counted_s += other.counted_s;
        self.counted_j += other.counted_j;
        self.power_w.merge(&other.power_w);
        self.last = other.last.or(self.last);
    }

    /// Mean power in watts. The counter knows what lies between two samples, their mean does not.
    pub(super) fn mean_power_w(&self) -> Option<f64> {
        let counted =
            (self.counted_s > 0.0 && self.counted_j > 0.0).then(|| self.counted_j / self.counted_s);
        counted.or(self.power_w.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn energy(samples: &[(Option<f64>, Option<f64>, Option<f64>)]) -> Energy {
        let mut energy = Energy::default();
        for &(elapsed_s, energy_j, power_w) in samples {
            energy.add(&GpuSample {
                power_w,
                energy_j,
                elapsed_s,
                ..GpuSample::at(Timestamp::now())
            });
        }
        energy
    }

    #[test]
    fn the_counter_is_believed_before_the_samples() {
        let counted = energy(&[
            (Some(1.0), Some(5000.0), Some(10.0)),
            (Some(2.0), Some(5100.0), Some(900.0)),
            (Some(5.0), Some(5500.0), Some(10.0)),
        ]);
        assert_eq!(counted.mean_power_w(), Some(125.0));
        let sampled = energy(&[
            (Some(1.0), None, Some(100.0)),
            (Some(2.0), None, Some(200.0)),
        ]);
        assert_eq!(sampled.mean_power_w(), Some(150.0));
        assert_eq!(
            energy(&[(Some(1.0), Some(5000.0), None)]).mean_power_w(),
            None
        );
    }

    #[test]
    fn a_sample_without_the_counter_leaves_no_gap() {
        let found = energy(&[
            (Some(0.0), Some(0.0), None),
            (Some(1.0), None, None),
            (Some(2.0), Some(300.0), None),
        ]);
        assert_eq!(found.mean_power_w(), Some(150.0));
    }

    #[test]
    fn a_recording_or_a_counter_that_begins_anew_adds_nothing() {
        let found = energy(&[
            (Some(10.0), Some(1000.0), None),
            (Some(0.0), Some(9000.0), None),
            (Some(1.0), Some(9100.0), None),
            (Some(2.0), Some(5.0), None),
            (Some(3.0), Some(105.0), None),
        ]);
        assert_eq!(found.mean_power_w(), Some(100.0));
    }

    #[test]
    fn stretches_of_time_add_up() {
        let mut one = energy(&[
            (Some(0.0), Some(0.0), Some(1.0)),
            (Some(1.0), Some(50.0), None),
        ]);
        one.merge(&energy(&[
            (Some(5.0), Some(900.0), None),
            (Some(8.0), Some(1350.0), None),
        ]));
        assert_eq!(one.mean_power_w(), Some(125.0));
    }
}
