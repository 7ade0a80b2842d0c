//! What a recording says of the hardware, whatever runs there were.

use super::gpus::Health;
use super::recordings::{Place, Recordings};
use super::thresholds::GPU_LOST_MOMENTS;
use crate::GpuSample;

/// The health of one GPU over a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HealthCount {
    last_ecc_uncorrected: Option<u64>,
    new_ecc_uncorrected: Option<u64>,
    /// Where its last values are.
    valued: Option<Place>,
    /// Its rows without values since then.
    empty_rows: u64,
    /// Whether its name is known: the driver knows that of a GPU that was lost before the recording began, too.
    named: bool,
}

impl HealthCount {
    pub(super) fn add(&mut self, sample: &GpuSample, place: Place) {
        if let Some(errors) = sample.ecc_uncorrected {
            // Errors of before are no finding, and a driver that was loaded again counts from 0.
            let before = self.last_ecc_uncorrected.unwrap_or(errors);
            *self.new_ecc_uncorrected.get_or_insert(0) += errors.saturating_sub(before);
            self.last_ecc_uncorrected = Some(errors);
        }
        self.named |= sample.uuid.is_some() || sample.name.is_some();
        if has_values(sample) {
            self.valued = Some(place);
            self.empty_rows = 0;
        } else {
            self.empty_rows += 1;
        }
    }

    pub(super) fn finish(&self, recordings: &Recordings) -> Health {
        let went_on = |valued: Place| {
            let recording = recordings.get(valued.recording);
            // Without elapsed times the log of another machine may have been appended.
            recording.timed && recording.moments - valued.moment >= GPU_LOST_MOMENTS
        };
        let known = self.valued.is_some() || self.named;
        Health {
            new_ecc_uncorrected: self.new_ecc_uncorrected,
            lost: self.valued.is_some_and(went_on) || known && self.empty_rows >= GPU_LOST_MOMENTS,
        }
    }
}

/// Whether the driver told anything of the GPU but its name.
fn has_values(sample: &GpuSample) -> bool {
    sample.gpu_util.is_some()
        || sample.mem_used_mib.is_some()
        || sample.temperature_c.is_some()
        || sample.power_w.is_some()
        || sample.sm_clock_mhz.is_some()
        || sample.power_limit_w.is_some()
        || sample.mem_clock_mhz.is_some()
        || sample.energy_j.is_some()
        || sample.throttle.is_some()
        || sample.processes.is_some()
        || sample.ecc_uncorrected.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two GPUs over ten seconds; the second has rows and values for as many of them.
    fn second_gpu(rows: u32, values: u32, timed: bool) -> Health {
        let mut recordings = Recordings::default();
        let mut health = HealthCount::default();
        for second in 0..10 {
            let time = format!("2026-01-31T12:00:{second:02}Z").parse().unwrap();
            let mut sample = GpuSample::at(time);
            sample.elapsed_s = timed.then(|| f64::from(second));
            recordings.place(&sample);
            sample.temperature_c = (second < values).then_some(50);
            if second < rows {
                let place = recordings.place(&sample);
                health.add(&sample, place);
            }
        }
        health.finish(&recordings)
    }

    #[test]
    fn a_gpu_whose_values_end_is_lost() {
        assert!(second_gpu(10, 5, true).lost, "rows without values");
        assert!(second_gpu(5, 5, true).lost, "no rows");
        assert!(
            second_gpu(10, 5, false).lost,
            "rows without values, no elapsed times"
        );
        assert!(!second_gpu(10, 10, true).lost);
        assert!(!second_gpu(10, 8, true).lost, "too early to say");
        assert!(
            !second_gpu(10, 0, true).lost,
            "nothing is known of it, not even its name"
        );
        assert!(
            !second_gpu(5, 5, false).lost,
            "the log may be that of another machine"
        );
    }

    #[test]
    fn a_gpu_of_which_only_the_name_is_known_is_lost() {
        let lost = |rows, temperature_c| {
            let mut recordings = Recordings::default();
            let mut health = HealthCount::default();
            for second in 0..rows {
                let time = format!("2026-01-31T12:00:{second:02}Z").parse().unwrap();
                let sample = GpuSample {
                    uuid: Some("GPU-0".to_owned()),
                    temperature_c,
                    elapsed_s: Some(f64::from(second)),
                    ..GpuSample::at(time)
                };
                let place = recordings.place(&sample);
                health.add(&sample, place);
            }
            health.finish(&recordings).lost
        };
        assert!(lost(GPU_LOST_MOMENTS as u32, None));
        assert!(!lost(GPU_LOST_MOMENTS as u32 - 1, None), "too early to say");
        assert!(!lost(10, Some(50)));
    }

    #[test]
    fn memory_errors_count_where_they_came_up() {
        let errors = |counts: &[Option<u64>]| {
            let mut recordings = Recordings::default();
            let mut health = HealthCount::default();
            for &ecc_uncorrected in counts {
                let sample = GpuSample {
                    ecc_uncorrected,
                    ..GpuSample::at("2026-01-31T12:00:00Z".parse().unwrap())
                };
                let place = recordings.place(&sample);
                health.add(&sample, place);
            }
            health.finish(&recordings).new_ecc_uncorrected
        };
        assert_eq!(errors(&[None, None]), None);
        assert_eq!(errors(&[Some(7), Some(7)]), Some(0));
        assert_eq!(errors(&[Some(7), Some(8), None, Some(10)]), Some(3));
        assert_eq!(errors(&[Some(7), Some(0), Some(1)]), Some(1));
    }
}
