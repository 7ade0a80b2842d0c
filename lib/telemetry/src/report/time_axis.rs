//! The time axis of charts: all recordings of a log in a row.

use plmkit_logs::GpuSample;

/// Samples further apart than this belong to two recordings. The axis has no time between recordings.
const MAX_GAP_S: f64 = 600.0;

/// Places samples on the axis, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeAxis {
    /// The clock of the previous sample (its boot id, or `None` for the time of day), and its seconds.
    last: Option<(Option<String>, f64)>,
    /// Added to the seconds of the clock.
    offset_s: f64,
    end_s: f64,
}

impl TimeAxis {
    /// Returns the seconds of a sample on the axis.
    pub(super) fn place(&mut self, sample: &GpuSample) -> f64 {
        let (boot_id, now_s) = match sample.boot_time() {
            Some((boot_id, now_s)) => (Some(boot_id), now_s),
            None => (None, sample.timestamp.unix_ms() as f64 / 1000.0),
        };
        match &mut self.last {
            Some((last_id, last_s))
                if last_id.as_deref() == boot_id
                    && (0.0..MAX_GAP_S).contains(&(now_s - *last_s)) =>
            {
                *last_s = now_s;
            }
            last => {
                *last = Some((boot_id.map(str::to_owned), now_s));
                self.offset_s = self.end_s - now_s;
            }
        }
        self.end_s = now_s + self.offset_s;
        self.end_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_follow_one_another_without_gaps() {
        let mut axis = TimeAxis::default();
        for (boot_id, second, expected) in [
            (Some("a"), 100.0, 0.0),
            (Some("a"), 101.0, 1.0),
            (Some("a"), 101.0, 1.0),
            (Some("b"), 5.0, 1.0),
            (Some("b"), 7.0, 3.0),
            (Some("b"), 5000.0, 3.0),
            (Some("b"), 5001.0, 4.0),
            (None, 0.0, 4.0),
        ] {
            let sample = GpuSample {
                boot_id: boot_id.map(str::to_owned),
                boot_s: boot_id.map(|_| second),
                ..GpuSample::default()
            };
            assert_eq!(axis.place(&sample).to_bits(), f64::to_bits(expected));
        }
    }
}
