//! Power, from a counter of energy and from samples.

use plmkit_logs::{GpuSample, Mean};

/// The power of one GPU over samples that follow one another.
#[derive(Clone, Debug, Default)]
pub(super) struct PowerCount {
    /// Of the last sample that has all: the boot, seconds since it, and joules since the driver was loaded.
    last: Option<(String, f64, f64)>,
    counted_s: f64,
    counted_j: f64,
    samples_w: Mean,
}

impl PowerCount {
    pub(super) fn add(&mut self, sample: &GpuSample) {
        if let Some(watts) = sample.power_w {
            self.samples_w.add(watts);
        }
        let Some(((boot_id, now_s), now_j)) = sample.boot_time().zip(sample.energy_j) else {
            return;
        };
        match &mut self.last {
            Some((last_id, last_s, last_j)) if last_id == boot_id => {
                // The counter begins at 0 with another driver.
                if now_s > *last_s && now_j >= *last_j {
                    self.counted_s += now_s - *last_s;
                    self.counted_j += now_j - *last_j;
                }
                (*last_s, *last_j) = (now_s, now_j);
            }
            last => *last = Some((boot_id.to_owned(), now_s, now_j)),
        }
    }

    /// Mean power in watts. The counter knows what lies between two samples, their mean does not.
    pub(super) fn mean_w(&self) -> Option<f64> {
        let counted = self.counted_s > 0.0 && self.counted_j > 0.0;
        let counted_w = counted.then(|| self.counted_j / self.counted_s);
        counted_w.or(self.samples_w.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_w(samples: &[(&str, f64, f64)]) -> Option<f64> {
        let mut count = PowerCount::default();
        for &(boot_id, boot_s, energy_j) in samples {
            count.add(&GpuSample {
                boot_id: Some(boot_id.to_owned()),
                boot_s: Some(boot_s),
                energy_j: Some(energy_j),
                power_w: Some(7.0),
                ..GpuSample::default()
            });
        }
        count.mean_w()
    }

    #[test]
    fn the_counter_comes_before_the_mean_of_samples() {
        assert_eq!(mean_w(&[("a", 1.0, 10.0), ("a", 3.0, 30.0)]), Some(10.0));
        assert_eq!(mean_w(&[("a", 1.0, 10.0)]), Some(7.0));
    }

    #[test]
    fn nothing_is_counted_over_a_boot_or_another_driver() {
        let (a, b) = (
            [("a", 1.0, 10.0), ("a", 2.0, 30.0)],
            [("b", 9.0, 50.0), ("b", 10.0, 70.0)],
        );
        assert_eq!(mean_w(&[a, b].concat()), Some(20.0));
        let another_driver = [("a", 3.0, 0.0), ("a", 4.0, 20.0), ("a", 4.0, 25.0)];
        assert_eq!(mean_w(&[&a[..], &another_driver].concat()), Some(20.0));
    }
}
