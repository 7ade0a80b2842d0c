//! Power, from an energy counter and from samples.

use plmkit_logs::{GpuSample, Mean};

/// The power of one GPU over consecutive samples.
#[derive(Clone, Debug, Default)]
pub(super) struct PowerCount {
    /// The boot id, seconds since boot, and joules of the last sample that has all three.
    last: Option<(String, f64, f64)>,
    counted_s: f64,
    counted_j: f64,
    samples_w: Mean,
}

impl PowerCount {
    pub(super) fn add(&mut self, sample: &GpuSample) {
        self.samples_w.extend(sample.power_w);
        let Some(((boot_id, now_s), now_j)) = sample.boot_time().zip(sample.energy_j) else {
            return;
        };
        match &mut self.last {
            Some((last_id, last_s, last_j)) if last_id == boot_id => {
                // A reloaded driver counts from 0.
                if now_s > *last_s && now_j >= *last_j {
                    self.counted_s += now_s - *last_s;
                    self.counted_j += now_j - *last_j;
                }
                (*last_s, *last_j) = (now_s, now_j);
            }
            last => *last = Some((boot_id.to_owned(), now_s, now_j)),
        }
    }

    /// Returns the mean power in watts. The counter covers the time between samples; the mean of the samples does not.
    pub(super) fn mean_w(&self) -> Option<f64> {
        let counted = self.counted_s > 0.0 && self.counted_j > 0.0;
        let counted_w = counted.then(|| self.counted_j / self.counted_s);
        counted_w.or(self.samples_w.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_comes_before_the_mean_and_skips_boots_and_reloaded_drivers() {
        let mean_w = |samples: &[(&str, f64, f64)]| {
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
        };
        let a = [("a", 1.0, 10.0), ("a", 2.0, 30.0)];
        assert_eq!(mean_w(&a[..1]), Some(7.0));
        assert_eq!(mean_w(&a), Some(20.0));
        let b = [("b", 9.0, 50.0), ("b", 10.0, 70.0)];
        assert_eq!(mean_w(&[a, b].concat()), Some(20.0));
        let reloaded = [("a", 3.0, 0.0), ("a", 4.0, 20.0), ("a", 4.0, 25.0)];
        assert_eq!(mean_w(&[&a[..], &reloaded].concat()), Some(20.0));
    }
}
