//! The axis of pictures: all recordings of a log, one after the other.

use plmkit_logs::GpuSample;

/// Samples further apart than this, in seconds, are of two recordings, and no time passes on the axis between them.
const LONGEST_GAP_S: f64 = 600.0;

/// Places samples on the axis, in the order of the log.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeAxis {
    /// The clock of the sample before: its boot, or the time of day; and its seconds.
    last: Option<(Option<String>, f64)>,
    /// What is added to the seconds of the clock.
    offset_s: f64,
    end_s: f64,
}

impl TimeAxis {
    /// Seconds on the axis at which a sample was taken.
    pub(super) fn place(&mut self, sample: &GpuSample) -> f64 {
        let (boot_id, now_s) = match sample.boot_time() {
            Some((boot_id, now_s)) => (Some(boot_id), now_s),
            None => (None, sample.timestamp.unix_ms() as f64 / 1000.0),
        };
        let goes_on = |(last_id, last_s): &(Option<String>, f64)| {
            last_id.as_deref() == boot_id && (0.0..LONGEST_GAP_S).contains(&(now_s - last_s))
        };
        match &mut self.last {
            Some(last) if goes_on(last) => last.1 = now_s,
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
        let mut places = Vec::new();
        for (boot_id, second) in [
            (Some("a"), 100.0),
            (Some("a"), 101.0),
            (Some("a"), 101.0),
            (Some("b"), 5.0),
            (Some("b"), 7.0),
            (Some("b"), 5000.0),
            (Some("b"), 5001.0),
            (None, 0.0),
        ] {
            places.push(axis.place(&GpuSample {
                boot_id: boot_id.map(str::to_owned),
                boot_s: boot_id.map(|_| second),
                ..GpuSample::default()
            }));
        }
        assert_eq!(places, [0.0, 1.0, 1.0, 1.0, 3.0, 3.0, 4.0, 4.0]);
    }
}
