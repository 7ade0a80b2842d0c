//! When runs were at work on which GPUs, by the clocks that events and samples share.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use plmkit_logs::{GpuSample, Timestamp};

use super::attempt::Attempt;

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

/// Returns the time of day in microseconds since 1970.
pub(super) fn time_of_day_us(time: Timestamp) -> i64 {
    time.unix_ms().clamp(0, MAX_UNIX_MS) * 1000
}

/// Extends a span to a time, if it is known.
pub(super) fn extend(span: &mut Option<Range<i64>>, time: Option<i64>) {
    let Some(time) = time else { return };
    let span = span.get_or_insert(time..time);
    *span = span.start.min(time)..span.end.max(time);
}

/// A moment by one of the clocks of [`WorkTimes`], in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) clock: usize,
    pub(super) at_us: i64,
}

/// Returns the length of a time by one clock, in microseconds.
pub(super) fn length(time: &Range<Moment>) -> i64 {
    time.end.at_us - time.start.at_us
}

/// A process at work: an attempt at a run.
#[derive(Clone, Debug)]
struct Work {
    /// The position of its run.
    run: usize,
    /// When it was at work; `None` if that is unknown, or no time.
    time: Option<Range<Moment>>,
}

/// Runs in all pieces of a schedule: memory is in proportion to the log.
const MAX_RUNS: usize = 1 << 24;

/// When runs were at work, on one GPU or on any.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    /// Disjoint times in their order, each with the runs that were at work.
    pieces: Vec<(Range<Moment>, BTreeSet<usize>)>,
    /// How long each run was at work, and any of them.
    runs_us: HashMap<usize, i64>,
    pub(super) us: i64,
}

impl Schedule {
    /// Cuts the time of the work wherever work begins or ends.
    fn new<'a>(work: impl Iterator<Item = &'a Work>) -> Self {
        let times = work.filter_map(|work| Some((work.run, work.time.as_ref()?)));
        let edges = times.enumerate().flat_map(|(number, (run, time))| {
            let process = (number, run);
            [(time.start, true, process), (time.end, false, process)]
        });
        let mut edges: Vec<_> = edges.collect();
        edges.sort_unstable();
        let mut schedule = Self::default();
        let (mut active, mut left) = (BTreeSet::new(), MAX_RUNS);
        for (place, (at, begins, process)) in edges.iter().enumerate() {
            if (1..=left).contains(&active.len()) && edges[place - 1].0 < *at {
                left -= active.len();
                let runs = active.iter().map(|(_, run)| *run).collect();
                schedule.push(edges[place - 1].0..*at, runs);
            }
            if *begins {
                active.insert(*process);
            } else {
                active.remove(process);
            }
        }
        schedule
    }

    fn push(&mut self, time: Range<Moment>, runs: BTreeSet<usize>) {
        let us = length(&time);
        self.us = self.us.saturating_add(us);
        for &run in &runs {
            let of_run = self.runs_us.entry(run).or_default();
            *of_run = of_run.saturating_add(us);
        }
        self.pieces.push((time, runs));
    }

    /// Returns how long a run was at work.
    pub(super) fn us_of(&self, run: usize) -> i64 {
        self.runs_us.get(&run).copied().unwrap_or(0)
    }

    /// Returns the parts of a time in which runs were at work.
    fn during(&self, time: &Range<Moment>) -> Vec<Part<'_>> {
        let first = self
            .pieces
            .partition_point(|(piece, _)| piece.end <= time.start);
        let inside = self.pieces[first..].iter();
        let inside = inside.take_while(|(piece, _)| piece.start < time.end);
        let parts = inside.map(|(piece, runs)| {
            let part = piece.start.max(time.start)..piece.end.min(time.end);
            (length(&part), runs)
        });
        parts.filter(|(us, _)| *us > 0).collect()
    }
}

/// A part of a time, in microseconds, and the runs that were at work.
pub(super) type Part<'a> = (i64, &'a BTreeSet<usize>);

/// The runs of a recording without any.
static NOBODY: BTreeSet<usize> = BTreeSet::new();

/// The work of all runs over time. Work and samples are joined if they have one clock: that of their boot, or the time of day
/// if they name none. The times of day of two machines may differ, so that they join nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkTimes {
    /// In the order of the runs.
    work: Vec<Work>,
    all: Schedule,
    /// For each clock, the seconds of one boot or the time of day, whether a sample has it.
    is_seen: Vec<bool>,
    /// The clock of each boot id, and the time of day.
    by_boot: HashMap<Option<String>, usize>,
    /// Whether the times of day of all machines agree: they are the only clock then.
    clocks_agree: bool,
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
        times.all = Schedule::new(times.work.iter());
        times
    }

    fn add(&mut self, run: usize, attempt: &Attempt) {
        let (position, setup) = (self.work.len(), &attempt.setup);
        let uuids: BTreeSet<&String> = setup.gpu_uuids.iter().flatten().collect();
        // A run without a start is not known to have computed on a GPU.
        let on_gpus = attempt.is_started && setup.device.as_deref() != Some("cpu");
        if on_gpus && uuids.is_empty() {
            self.on_any.push(position);
        }
        for uuid in uuids {
            let named = self.named.entry(uuid.clone()).or_default();
            named.push(position);
        }
        let by_boot = setup.boot_id.as_deref().zip(attempt.boot_us.clone());
        let (boot_id, time) = match by_boot.filter(|_| !self.clocks_agree) {
            Some((boot_id, time)) => (Some(boot_id), Some(time)),
            None => (None, attempt.time_us.clone()),
        };
        let time = time.filter(|time| !time.is_empty());
        let time = time.map(|time| {
            let clock = self.clock(boot_id);
            let [start, end] = [time.start, time.end].map(|at_us| Moment { clock, at_us });
            start..end
        });
        self.work.push(Work { run, time });
    }

    /// Returns the position of the clock of a boot, or of the time of day.
    fn clock(&mut self, boot_id: Option<&str>) -> usize {
        let is_seen = &mut self.is_seen;
        let key = boot_id.map(str::to_owned);
        *self.by_boot.entry(key).or_insert_with(|| {
            is_seen.push(false);
            is_seen.len() - 1
        })
    }

    /// Returns the time of a sample by its clock.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Moment {
        let by_boot = sample.boot_time().filter(|_| !self.clocks_agree);
        let clock = self.clock(by_boot.map(|(boot_id, _)| boot_id));
        self.is_seen[clock] = true;
        let at_us = by_boot.map(|(_, boot_s)| micros(boot_s));
        Moment {
            clock,
            at_us: at_us.unwrap_or_else(|| time_of_day_us(sample.timestamp)),
        }
    }

    /// Whether there are no runs.
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Whether there are samples, and none has a clock of a run.
    pub(super) fn is_apart(&self, run: usize) -> bool {
        let first = self.work.partition_point(|work| work.run < run);
        let of_run = self.work[first..].iter().take_while(|work| work.run == run);
        let mut times = of_run.filter_map(|work| work.time.as_ref()).peekable();
        let is_timed = times.peek().is_some();
        let is_seen = times.any(|time| self.is_seen[time.start.clock]);
        is_timed && !is_seen && self.is_seen.contains(&true)
    }

    /// Returns when runs were at work on the GPU `uuid`: one that they name, or any if they name none and are not on a CPU. `None`
    /// if no run was.
    pub(super) fn on_gpu(&self, uuid: &str) -> Option<Schedule> {
        let named = self.named.get(uuid).into_iter().flatten();
        let mut positions = named.chain(&self.on_any).peekable();
        positions.peek()?;
        Some(Schedule::new(positions.map(|&place| &self.work[place])))
    }

    /// Returns the parts of a time in which runs were at work, on a GPU if it has a schedule of its own. Without any runs, all of the
    /// time counts.
    pub(super) fn during<'a>(
        &'a self,
        own: Option<&'a Schedule>,
        time: &Range<Moment>,
    ) -> Vec<Part<'a>> {
        if self.is_empty() {
            let all = Some((length(time), &NOBODY));
            return all.into_iter().filter(|(us, _)| *us > 0).collect();
        }
        own.unwrap_or(&self.all).during(time)
    }

    /// Returns how long any run was at work.
    pub(super) fn us(&self) -> i64 {
        self.all.us
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::{BatchDone, Event, RunStarted};

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

    fn second_before(end: Moment) -> Range<Moment> {
        let at_us = end.at_us - 1_000_000;
        Moment { at_us, ..end }..end
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
            let time = second_before(times.place(&at(boot_time, time_ms)));
            let parts = times.during(None, &time).into_iter();
            let parts = parts.map(|(us, runs)| (us, runs.iter().copied().collect()));
            let found: Vec<(i64, Vec<usize>)> = parts.collect();
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        let length_us = |run| times.all.us_of(run);
        assert_eq!([0, 1, 2].map(length_us), [15_000_000, 15_000_000, 0]);
        // The clocks are said to agree.
        let mut times = WorkTimes::new(attempts(), true);
        let time = second_before(times.place(&at(Some(("other", 18.0)), 10_250)));
        let parts = times.during(None, &time);
        assert_eq!(parts, [(250_000, &BTreeSet::from([0]))]);
    }

    #[test]
    fn a_time_counts_once_however_many_runs_are_at_work() {
        let attempts = [attempt(None, 10, 20), attempt(None, 15, 30)];
        let times = WorkTimes::new(attempts.iter().enumerate(), false);
        assert_eq!(times.us(), 20_000_000);
    }
}
