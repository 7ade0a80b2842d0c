//! The recordings of a sample log: a log is appended to, by one recorder after the other or by those of two machines.

use super::clock::Clock;
use crate::{GpuSample, Timestamp};

/// Recordings that are told apart; what comes after them belongs to the last.
const MOST: usize = 1024;

/// No recording is as long, in seconds: sums stay finite.
const LONGEST_S: f64 = 1e13;

/// A recorder does not sleep for longer between two samples, in seconds: what goes on after that is another one.
const LONGEST_STEP_S: f64 = 600.0;

/// From the start of a recorder to its end. Samples of a recorder that counts no elapsed time are one recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Recording {
    pub(super) clock: Clock,
    /// Whether its samples say how long it has lasted.
    pub(super) timed: bool,
    /// Moments sampled.
    pub(super) moments: u64,
    /// Where it begins on the axis of all recordings, one after the other, in seconds.
    pub(super) begins_s: f64,
    first: Option<Timestamp>,
    last: Option<(Timestamp, f64)>,
}

/// Where a sample lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) recording: usize,
    /// The stretch of the recording's clock.
    pub(super) stretch: usize,
    /// The moment of the recording, from 1.
    pub(super) moment: u64,
    /// Seconds on the axis of all recordings.
    pub(super) at_s: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Recordings {
    list: Vec<Recording>,
    /// That of the sample before.
    current: usize,
    /// The end of the axis.
    end_s: f64,
}

impl Recordings {
    /// The place of the next sample.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Place {
        let elapsed_s = sample.elapsed_s.map(|elapsed_s| elapsed_s.min(LONGEST_S));
        self.current = self.recording(sample.timestamp, elapsed_s);
        let recording = &mut self.list[self.current];
        let stretch = recording.clock.add(sample.timestamp, elapsed_s);
        let first = *recording.first.get_or_insert(sample.timestamp);
        let since_first_s = (sample.timestamp.unix_ms() - first.unix_ms()).max(0) as f64 / 1000.0;
        let into_s = elapsed_s.unwrap_or(since_first_s);
        // Each GPU's row of a moment carries the same times.
        let now = Some((sample.timestamp, into_s));
        recording.moments += u64::from(recording.last != now);
        recording.last = now;
        let at_s = recording.begins_s + into_s;
        self.end_s = self.end_s.max(at_s);
        Place {
            recording: self.current,
            stretch,
            moment: recording.moments,
            at_s,
        }
    }

    pub(super) fn get(&self, recording: usize) -> &Recording {
        &self.list[recording]
    }

    fn recording(&mut self, time: Timestamp, elapsed_s: Option<f64>) -> usize {
        let Some(elapsed_s) = elapsed_s else {
            let untimed = self.list.iter().position(|recording| !recording.timed);
            return untimed.unwrap_or_else(|| self.begin(false));
        };
        let current = self.list.get(self.current);
        if current.is_some_and(|recording| recording.clock.knows(time, elapsed_s)) {
            return self.current;
        }
        let knows = |recording: &Recording| recording.clock.knows(time, elapsed_s);
        if let Some(known) = self.list.iter().rposition(knows) {
            return known;
        }
        // A clock that was set, where elapsed time goes on; another recorder, where it begins anew.
        let goes_on = |recording: &Recording| {
            let step_s = recording.last.map(|(_, last_s)| elapsed_s - last_s);
            recording.timed && step_s.is_some_and(|step_s| (0.0..LONGEST_STEP_S).contains(&step_s))
        };
        match self.list.get(self.current) {
            Some(current) if goes_on(current) => self.current,
            _ => self.begin(true),
        }
    }

    fn begin(&mut self, timed: bool) -> usize {
        if self.list.len() < MOST {
            self.list.push(Recording {
                timed,
                begins_s: self.end_s,
                ..Recording::default()
            });
        }
        self.list.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recording, stretch and moment of samples at a time of day and an elapsed time.
    fn places(samples: &[(&str, Option<f64>)]) -> Vec<(usize, usize, u64)> {
        let mut recordings = Recordings::default();
        let places = samples.iter().map(|&(time, elapsed_s)| {
            let place = recordings.place(&GpuSample {
                elapsed_s,
                ..GpuSample::at(format!("2026-01-31T{time}Z").parse().unwrap())
            });
            (place.recording, place.stretch, place.moment)
        });
        places.collect()
    }

    #[test]
    fn a_clock_that_is_set_is_no_other_recording() {
        let found = places(&[
            ("12:00:00", Some(0.0)),
            ("12:00:01", Some(1.0)),
            ("12:00:01", Some(1.0)),
            ("11:00:02", Some(2.0)),
        ]);
        assert_eq!(found, [(0, 0, 1), (0, 0, 2), (0, 0, 2), (0, 1, 3)]);
    }

    #[test]
    fn a_recorder_that_begins_anew_is_one() {
        let found = places(&[
            ("12:00:00", Some(0.0)),
            ("12:00:09", Some(9.0)),
            ("12:00:20", Some(0.0)),
            ("12:00:21", Some(1.0)),
        ]);
        assert_eq!(found, [(0, 0, 1), (0, 0, 2), (1, 0, 1), (1, 0, 2)]);
    }

    #[test]
    fn recorders_of_two_machines_in_turns_are_two() {
        let found = places(&[
            ("12:00:00", Some(100.0)),
            ("12:00:00", Some(5.0)),
            ("12:00:01", Some(101.0)),
            ("12:00:01", Some(6.0)),
            ("12:00:01", Some(5000.0)),
        ]);
        let expected = [(0, 0, 1), (1, 0, 1), (0, 0, 2), (1, 0, 2), (2, 0, 1)];
        assert_eq!(found, expected);
    }

    #[test]
    fn samples_without_elapsed_time_are_one_recording() {
        let found = places(&[("12:00:00", None), ("17:00:00", None), ("11:00:00", None)]);
        assert_eq!(found, [(0, 0, 1), (0, 0, 2), (0, 0, 3)]);
    }
}
