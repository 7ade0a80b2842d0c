//! The readings of a GPU or a host, by time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::count::Count;
use super::pace::length;
use super::reading::Reading;
use super::time_span::WorkTimes;

/// A time over which readings are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum During {
    /// The whole recording.
    Recording,
    /// The runs that used the GPU, or all runs if none did.
    Runs,
    /// The run at a position.
    Run(usize),
    /// The attempt at a position, if its run has several.
    Attempt(usize),
}

/// The readings of a GPU or a host, counted over several times.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    /// The number of the last reading.
    last: u64,
    counts: BTreeMap<During, Count>,
}

impl Readings {
    /// Adds a reading, with the parts of its time that no reading stood for before, and with the work in that time: see
    /// [`WorkTimes::at_work`]. `are_own` tells that the work is that of runs on this device.
    pub(super) fn add(
        &mut self,
        reading: &Reading,
        fresh: &[Range<i64>],
        work: &[(i64, Vec<usize>)],
        are_own: bool,
        times: &WorkTimes,
    ) {
        self.last += 1;
        let mut add = |during, us, runs| {
            let count = self.counts.entry(during).or_default();
            count.add(reading, self.last, us, runs);
        };
        let fresh_us: i64 = fresh.iter().map(length).sum();
        if fresh_us > 0 {
            add(During::Recording, fresh_us, 1);
        }
        for (us, attempts) in work {
            let own = attempts.iter().filter(|_| are_own);
            let runs: BTreeSet<usize> = own.clone().map(|&attempt| times.run_of(attempt)).collect();
            add(During::Runs, *us, runs.len());
            let of_runs = runs.iter().map(|&run| During::Run(run));
            let of_attempts = own.map(|&attempt| times.during(attempt));
            let each: BTreeSet<During> = of_runs.chain(of_attempts).collect();
            for during in each {
                add(during, *us, runs.len());
            }
        }
    }

    /// Returns the readings in a time.
    pub(super) fn during(&self, time: During) -> Count {
        self.counts.get(&time).cloned().unwrap_or_default()
    }

    /// Returns the positions of the runs with readings.
    pub(super) fn runs(&self) -> impl Iterator<Item = usize> {
        self.counts.keys().filter_map(|during| match during {
            During::Run(run) => Some(*run),
            _ => None,
        })
    }
}
