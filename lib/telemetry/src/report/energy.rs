//! Power, from a counter of energy and from samples.

use std::collections::BTreeMap;

use super::mean::Mean;
use crate::GpuSample;

/// The power of one GPU over samples that follow one another in their recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Energy {
    /// Of each recording's sample before, where it says both: seconds of the recording, joules since the driver was loaded.
    /// Two recorders that wrote to one log did so in turns.
    last: BTreeMap<usize, (f64, f64)>,
    counted_s: f64,
    counted_j: f64,
    power_w: Mean,
}

impl Energy {
    pub(super) fn add(&mut self, sample: &GpuSample, recording: usize) {
        if let Some(watts) = sample.power_w {
            self.power_w.add(watts);
        }
        let Some((to_s, to_j)) = sample.elapsed_s.zip(sample.energy_j) else {
            return;
        };
        let (from_s, from_j) = self.last.get(&recording).copied().unwrap_or((to_s, to_j));
        // Two recorders that were started in the same second cannot be told apart: the one that is behind adds nothing.
        if to_s < from_s {
            return;
        }
        // The counter begins at 0 with another driver.
        if to_s > from_s && to_j >= from_j {
            self.counted_s += to_s - from_s;
            self.counted_j += to_j - from_j;
        }
        self.last.insert(recording, (to_s, to_j));
    }

    /// Takes in what another stretch of time says.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counted_s += other.counted_s;
        self.counted_j += other.counted_j;
        self.power_w.merge(&other.power_w);
        self.last.extend(&other.last);
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

    fn add(energy: &mut Energy, recording: usize, sample: (Option<f64>, Option<f64>, Option<f64>)) {
        let (elapsed_s, energy_j, power_w) = sample;
        let sample = GpuSample {
            power_w,
            energy_j,
            elapsed_s,
            ..GpuSample::at(Timestamp::now())
        };
        energy.add(&sample, recording);
    }

    fn energy(samples: &[(Option<f64>, Option<f64>, Option<f64>)]) -> Energy {
        let mut energy = Energy::default();
        for &sample in samples {
            add(&mut energy, 0, sample);
        }
        energy
    }

    /// The power of samples of several recordings: recording, seconds, joules.
    fn in_turns(samples: &[(usize, f64, f64)]) -> Option<f64> {
        let mut energy = Energy::default();
        for &(recording, elapsed_s, energy_j) in samples {
            add(
                &mut energy,
                recording,
                (Some(elapsed_s), Some(energy_j), None),
            );
        }
        energy.mean_power_w()
    }

    #[test]
    fn recorders_that_wrote_in_turns_are_not_mixed() {
        let apart = [
            (0, 100.0, 0.0),
            (1, 5.0, 200.0),
            (0, 101.0, 400.0),
            (1, 6.0, 600.0),
            (0, 102.0, 800.0),
        ];
        assert_eq!(in_turns(&apart), Some(400.0));
        let started_at_once = [
            (0, 5.0, 0.0),
            (0, 3.5, 200.0),
            (0, 6.0, 400.0),
            (0, 4.5, 600.0),
            (0, 7.0, 800.0),
        ];
        assert_eq!(in_turns(&started_at_once), Some(400.0));
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
        let found = in_turns(&[
            (0, 10.0, 1000.0),
            (1, 0.0, 9000.0),
            (1, 1.0, 9100.0),
            (1, 2.0, 5.0),
            (1, 3.0, 105.0),
        ]);
        assert_eq!(found, Some(100.0));
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
