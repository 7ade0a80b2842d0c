//! When runs were at work on which GPUs, by the clocks that events and samples share.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use plmkit_logs::event::Event;
use plmkit_logs::{GpuSample, Timestamp};

use super::attempt::Attempt;
use super::pace::{length, since};

/// No clock of a machine counts further: about 30 years.
const MAX_S: f64 = 1e9;

/// The year 5138: sums and multiples of times do not overflow.
const MAX_UNIX_MS: i64 = 100_000_000_000_000;

/// Returns seconds as whole microseconds. Sums of these are exact.
pub(super) fn micros(seconds: f64) -> i64 {
    (seconds.clamp(0.0, MAX_S) * 1e6).round() as i64
}

/// Returns microseconds as seconds.
pub(super) fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

/// The time from the first to the last event of a process, by both clocks.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSpan {
    boot_id: Option<String>,
    /// In microseconds since boot.
    boot_us: Option<Range<i64>>,
    /// By the time of day, in microseconds since 1970.
    time_us: Option<Range<i64>>,
}

impl TimeSpan {
    /// Extends the span to an event.
    pub(super) fn add(&mut self, event: &Event) {
        if let Event::Run(started) = event {
            self.boot_id.clone_from(&started.boot_id);
        }
        extend(&mut self.boot_us, event.boot_s().map(micros));
        extend(&mut self.time_us, event.time().map(time_of_day_us));
    }

    /// Returns the seconds from the end of this span to the start of a later one: since boot if both have the same boot, else
    /// by the time of day.
    pub(super) fn gap_to(&self, later: &Self) -> Option<f64> {
        let same_boot = self.boot_id.is_some() && self.boot_id == later.boot_id;
        let boot_us = self.boot_us.as_ref().zip(later.boot_us.as_ref());
        let times_us = self.time_us.as_ref().zip(later.time_us.as_ref());
        let (before, after) = boot_us.filter(|_| same_boot).or(times_us)?;
        Some(seconds(after.start - before.end)).filter(|&gap_s| gap_s >= 0.0)
    }
}

fn time_of_day_us(time: Timestamp) -> i64 {
    time.unix_ms().clamp(0, MAX_UNIX_MS) * 1000
}

fn extend(span: &mut Option<Range<i64>>, time: Option<i64>) {
    let Some(time) = time else { return };
    let span = span.get_or_insert(time..time);
    *span = span.start.min(time)..span.end.max(time);
}

/// A process at work: an attempt at a run.
#[derive(Clone, Debug)]
struct Work {
    /// The position of its run.
    run: usize,
    /// The position of its clock, and when it was at work; `None` if that is unknown, or no time.
    time: Option<(usize, Range<i64>)>,
    /// Whether it may have computed on a GPU. A run without a start is not known to.
    on_gpus: bool,
    /// The GPUs that it names, in the order of their UUIDs.
    gpu_uuids: Vec<String>,
}

impl Work {
    /// Whether it computed on the GPU `uuid`: one that it names, or any if it names none and is not on a CPU.
    fn uses(&self, uuid: &str) -> bool {
        if self.gpu_uuids.is_empty() {
            return self.on_gpus;
        }
        let found = self.gpu_uuids.binary_search_by(|named| (**named).cmp(uuid));
        found.is_ok()
    }
}

/// A moment by one of the clocks of [`WorkTimes`], in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) clock: usize,
    pub(super) at_us: i64,
}

/// Positions of work in all pieces: memory is in proportion to the log.
const MAX_POSITIONS: usize = 1 << 24;

/// The seconds of one boot, or the time of day.
#[derive(Clone, Debug, Default)]
struct Clock {
    /// Whether a sample has this clock.
    is_seen: bool,
    /// The positions of the work that has a time by this clock.
    work: Vec<usize>,
    /// The time of all work, cut wherever work begins or ends; each piece with the positions of its work.
    pieces: Vec<(Range<i64>, Vec<usize>)>,
}

/// The work of all runs over time. Work and samples are joined if they have one clock: that of their boot, or the time of day
/// if they name none. The times of day of two machines may differ, so that they join nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkTimes {
    work: Vec<Work>,
    clocks: Vec<Clock>,
    /// The clock of each boot id, and the time of day.
    by_boot: HashMap<Option<String>, usize>,
    /// Whether the times of day of all machines agree: they are the only clock then.
    clocks_agree: bool,
    /// Whether a sample has a clock that no run has.
    has_strangers: bool,
    /// The names of machines by their boots.
    hosts: HashMap<String, String>,
    /// The positions of the work that names each GPU, and of the work that may have used any. There may be many of both.
    named: HashMap<String, Vec<usize>>,
    on_any: Vec<usize>,
}

impl WorkTimes {
    /// `attempts` come with the positions of their runs, in that order. With `clocks_agree`, boot ids do not matter.
    pub(super) fn new<'a>(
        attempts: impl Iterator<Item = (usize, &'a Attempt)>,
        clocks_agree: bool,
    ) -> Self {
        let mut times = Self {
            clocks_agree,
            ..Self::default()
        };
        for (run, attempt) in attempts {
            times.add(run, attempt);
        }
        for clock in 0..times.clocks.len() {
            times.clocks[clock].pieces = times.pieces(clock);
        }
        times
    }

    fn add(&mut self, run: usize, attempt: &Attempt) {
        let (position, span, setup) = (self.work.len(), &attempt.span, &attempt.setup);
        let mut gpu_uuids = setup.gpu_uuids.clone().unwrap_or_default();
        gpu_uuids.sort_unstable();
        gpu_uuids.dedup();
        for uuid in &gpu_uuids {
            let named = self.named.entry(uuid.clone()).or_default();
            named.push(position);
        }
        let on_gpus = attempt.is_started && setup.device.as_deref() != Some("cpu");
        if on_gpus && gpu_uuids.is_empty() {
            self.on_any.push(position);
        }
        self.hosts
            .extend(span.boot_id.clone().zip(setup.host.clone()));
        let by_boot = span.boot_id.as_deref().zip(span.boot_us.clone());
        let (boot_id, time) = match by_boot.filter(|_| !self.clocks_agree) {
            Some((boot_id, time)) => (Some(boot_id), Some(time)),
            None => (None, span.time_us.clone()),
        };
        let time = time.filter(|time| !time.is_empty());
        let time = time.map(|time| (self.clock(boot_id), time));
        if let Some((clock, _)) = time {
            self.clocks[clock].work.push(position);
        }
        self.work.push(Work {
            run,
            time,
            on_gpus,
            gpu_uuids,
        });
    }

    /// Returns the position of the clock of a boot, or of the time of day.
    fn clock(&mut self, boot_id: Option<&str>) -> usize {
        let clocks = &mut self.clocks;
        let key = boot_id.map(str::to_owned);
        *self.by_boot.entry(key).or_insert_with(|| {
            clocks.push(Clock::default());
            clocks.len() - 1
        })
    }

    /// Cuts the time of all work by a clock into pieces.
    fn pieces(&self, clock: usize) -> Vec<(Range<i64>, Vec<usize>)> {
        let all = self.clocks[clock].work.iter();
        let spans =
            all.filter_map(|&position| Some((position, &self.work[position].time.as_ref()?.1)));
        let edges = spans.flat_map(|(position, span)| {
            [(span.start, true, position), (span.end, false, position)]
        });
        let mut edges: Vec<(i64, bool, usize)> = edges.collect();
        edges.sort_unstable();
        let (mut pieces, mut active, mut from_us) = (Vec::new(), BTreeSet::new(), i64::MIN);
        let mut left = MAX_POSITIONS;
        for (at_us, begins, position) in edges {
            let is_known = (1..=left).contains(&active.len());
            if from_us < at_us && is_known {
                left -= active.len();
                pieces.push((from_us..at_us, active.iter().copied().collect()));
            }
            from_us = at_us;
            if begins {
                active.insert(position);
            } else {
                active.remove(&position);
            }
        }
        pieces
    }

    /// Returns the time of a sample by its clock.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Moment {
        let by_boot = sample.boot_time().filter(|_| !self.clocks_agree);
        let clock = self.clock(by_boot.map(|(boot_id, _)| boot_id));
        self.clocks[clock].is_seen = true;
        self.has_strangers |= self.clocks[clock].work.is_empty();
        let at_us = by_boot.map(|(_, boot_s)| micros(boot_s));
        Moment {
            clock,
            at_us: at_us.unwrap_or_else(|| time_of_day_us(sample.timestamp)),
        }
    }

    /// Whether no sample has a clock of a run, and some have one that no run has.
    pub(super) fn is_apart(&self, run: usize) -> bool {
        let times = self.work[self.positions_of(run)].iter();
        let clocks: Vec<usize> = times
            .filter_map(|work| Some(work.time.as_ref()?.0))
            .collect();
        let is_seen = clocks.iter().any(|&clock| self.clocks[clock].is_seen);
        self.has_strangers && !clocks.is_empty() && !is_seen
    }

    /// Returns the parts of a time in which chosen work was done, each with its length in microseconds and the positions of
    /// that work.
    pub(super) fn at_work(
        &self,
        clock: usize,
        time: &Range<i64>,
        is_chosen: impl Fn(usize) -> bool,
    ) -> Vec<(i64, Vec<usize>)> {
        let pieces = &self.clocks[clock].pieces;
        let first = pieces.partition_point(|(piece, _)| piece.end <= time.start);
        let inside = pieces[first..].iter();
        let inside = inside.take_while(|(piece, _)| piece.start < time.end);
        let parts = inside.filter_map(|(piece, work)| {
            let part = piece.start.max(time.start)..piece.end.min(time.end);
            let work = work.iter().copied().filter(|&position| is_chosen(position));
            let work: Vec<usize> = work.collect();
            (!work.is_empty() && !part.is_empty()).then(|| (length(&part), work))
        });
        parts.collect()
    }

    /// Returns for how long runs used the GPU `uuid` between two moments; without runs, the time between them.
    pub(super) fn used_us(&self, from: Option<Moment>, to: Moment, uuid: &str) -> i64 {
        let Some(time) = since(from, to) else {
            return 0;
        };
        if self.all().is_empty() {
            return length(&time);
        }
        let parts = self.at_work(to.clock, &time, |position| self.uses(position, uuid));
        parts.iter().map(|(us, _)| us).sum()
    }

    /// Returns the run of the work at a position.
    pub(super) fn run_of(&self, position: usize) -> usize {
        self.work[position].run
    }

    /// Whether the work at a position computed on the GPU `uuid`.
    pub(super) fn uses(&self, position: usize, uuid: &str) -> bool {
        self.work[position].uses(uuid)
    }

    /// Returns the positions of a run's processes.
    pub(super) fn positions_of(&self, run: usize) -> Range<usize> {
        let first = self.work.partition_point(|work| work.run < run);
        first..self.work.partition_point(|work| work.run <= run)
    }

    /// Returns the positions of the work that used the GPU `uuid`.
    pub(super) fn positions_on(&self, uuid: &str) -> impl Iterator<Item = usize> {
        let named = self.named.get(uuid);
        named.into_iter().flatten().chain(&self.on_any).copied()
    }

    /// Returns the positions of all work.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.work.len()
    }

    /// Returns the name of the machine with a boot, if a run tells it.
    pub(super) fn host_of(&self, boot_id: &str) -> Option<&String> {
        self.hosts.get(boot_id)
    }

    /// Returns how long any of the chosen work was done, in microseconds.
    pub(super) fn time_us(&self, chosen: impl Iterator<Item = usize>) -> i64 {
        let times = chosen.filter_map(|position| self.work[position].time.clone());
        let mut times: Vec<(usize, Range<i64>)> = times.collect();
        times.sort_by_key(|(clock, time)| (*clock, time.start));
        // The end of the times so far, with its clock: times may overlap.
        let mut end = (0, i64::MIN);
        let lengths = times.into_iter().map(|(clock, time)| {
            let (_, from_us) = end.max((clock, time.start));
            end = end.max((clock, time.end));
            end.1 - from_us
        });
        lengths.fold(0, i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::{BatchDone, RunStarted};

    use super::*;

    fn attempt(boot_id: Option<&str>, first: u32, last: u32) -> Attempt {
        let time = |second: u32| format!("1970-01-01T00:00:{second}Z").parse().ok();
        let mut attempt = Attempt::default();
        attempt.add(&Event::Run(RunStarted {
            boot_id: boot_id.map(str::to_owned),
            boot_s: boot_id.map(|_| f64::from(first)),
            time: time(first),
            ..RunStarted::default()
        }));
        attempt.add(&Event::Batch(BatchDone {
            boot_s: boot_id.map(|_| f64::from(last)),
            time: time(last),
            ..BatchDone::default()
        }));
        attempt
    }

    fn at(boot_time: Option<(&str, f64)>, time_ms: i64) -> GpuSample {
        let time = chrono::DateTime::from_timestamp_millis(time_ms).unwrap();
        GpuSample {
            boot_id: boot_time.map(|(id, _)| id.to_owned()),
            boot_s: boot_time.map(|(_, second)| second),
            ..GpuSample::at(time.into())
        }
    }

    #[test]
    fn samples_are_joined_by_their_boot_and_by_the_time_of_day_if_nobody_names_a_boot() {
        let spans = [
            (0, Some("a"), 10, 20),
            (0, Some("a"), 20, 25),
            (1, Some("b"), 15, 30),
            (2, None, 40, 40),
            (3, None, 50, 55),
        ];
        let attempts =
            spans.map(|(run, boot_id, first, last)| (run, attempt(boot_id, first, last)));
        let attempts = || attempts.iter().map(|(run, attempt)| (*run, attempt));
        let mut times = WorkTimes::new(attempts(), false);
        for (boot_time, time_ms, expected) in [
            (Some(("a", 10.0)), 18_000, &[][..]),
            (Some(("a", 10.5)), 18_000, &[(500_000, vec![0])]),
            (
                Some(("a", 20.5)),
                18_000,
                &[(500_000, vec![0]), (500_000, vec![0])],
            ),
            (Some(("a", 25.25)), 18_000, &[(750_000, vec![0])]),
            (Some(("a", 26.0)), 18_000, &[]),
            (Some(("b", 20.0)), 40_000, &[(1_000_000, vec![1])]),
            (Some(("other", 18.0)), 10_250, &[]),
            (None, 15_500, &[]),
            (None, 30_250, &[]),
            (None, 40_500, &[]),
            (None, 55_250, &[(750_000, vec![3])]),
        ] {
            let Moment { clock, at_us } = times.place(&at(boot_time, time_ms));
            let time = at_us - 1_000_000..at_us;
            let parts = times.at_work(clock, &time, |_| true);
            let parts = parts.into_iter();
            let run_of = |position: &usize| times.run_of(*position);
            let parts = parts.map(|(us, work)| (us, work.iter().map(run_of).collect()));
            let found: Vec<(i64, Vec<usize>)> = parts.collect();
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        let length_us = |run| times.time_us(times.positions_of(run));
        assert_eq!([0, 1, 2].map(length_us), [15_000_000, 15_000_000, 0]);
        // The clocks are said to agree.
        let mut times = WorkTimes::new(attempts(), true);
        let Moment { clock, at_us } = times.place(&at(Some(("other", 18.0)), 10_250));
        let time = at_us - 1_000_000..at_us;
        let parts = times.at_work(clock, &time, |_| true);
        assert_eq!(parts, [(250_000, vec![0])]);
    }

    #[test]
    fn a_time_counts_once_however_many_runs_are_at_work() {
        let attempts = [attempt(None, 10, 20), attempt(None, 15, 30)];
        let times = WorkTimes::new(attempts.iter().enumerate(), false);
        assert_eq!(times.time_us(times.all()), 20_000_000);
    }
}
