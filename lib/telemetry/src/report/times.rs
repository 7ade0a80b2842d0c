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
}

/// A moment by one of the clocks of [`WorkTimes`], in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) clock: usize,
    pub(super) at_us: i64,
}

/// Runs in all pieces of a schedule: memory is in proportion to the log.
const MAX_RUNS: usize = 1 << 24;

/// A time, and the runs that were at work.
type Piece = (Range<i64>, BTreeSet<usize>);

/// When runs were at work, on one GPU or on any: disjoint times by each clock, each with its runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Schedule {
    pieces: HashMap<usize, Vec<Piece>>,
    /// How long each run was at work, and any of them.
    runs_us: HashMap<usize, i64>,
    pub(super) us: i64,
}

impl Schedule {
    /// Cuts the time of the work wherever work begins or ends.
    fn new<'a>(work: impl Iterator<Item = &'a Work>) -> Self {
        let spans = work.filter_map(|work| Some((work.run, work.time.as_ref()?)));
        let edges = spans
            .enumerate()
            .flat_map(|(number, (run, (clock, time)))| {
                let process = (number, run);
                [
                    (*clock, time.start, true, process),
                    (*clock, time.end, false, process),
                ]
            });
        let mut edges: Vec<_> = edges.collect();
        edges.sort_unstable();
        let mut schedule = Self::default();
        let (mut active, mut from_us, mut left) = (BTreeSet::new(), i64::MIN, MAX_RUNS);
        for (clock, at_us, begins, process) in edges {
            if (1..=left).contains(&active.len()) && from_us < at_us {
                left -= active.len();
                let runs = active.iter().map(|(_, run)| *run).collect();
                schedule.push(clock, from_us..at_us, runs);
            }
            from_us = at_us;
            if begins {
                active.insert(process);
            } else {
                active.remove(&process);
            }
        }
        schedule
    }

    fn push(&mut self, clock: usize, time: Range<i64>, runs: BTreeSet<usize>) {
        let us = length(&time);
        self.us = self.us.saturating_add(us);
        for &run in &runs {
            let of_run = self.runs_us.entry(run).or_default();
            *of_run = of_run.saturating_add(us);
        }
        let pieces = self.pieces.entry(clock).or_default();
        pieces.push((time, runs));
    }

    /// Returns how long a run was at work.
    pub(super) fn us_of(&self, run: usize) -> i64 {
        self.runs_us.get(&run).copied().unwrap_or(0)
    }

    /// Returns the parts of a time in which runs were at work: the length of each in microseconds, and its runs.
    fn during(&self, clock: usize, time: &Range<i64>) -> Vec<Part<'_>> {
        let pieces = self.pieces.get(&clock).map_or(&[][..], Vec::as_slice);
        let first = pieces.partition_point(|(piece, _)| piece.end <= time.start);
        let inside = pieces[first..].iter();
        let inside = inside.take_while(|(piece, _)| piece.start < time.end);
        let parts = inside.map(|(piece, runs)| {
            let us = piece.end.min(time.end) - piece.start.max(time.start);
            (us, runs)
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
        times.all = Schedule::new(times.work.iter());
        times
    }

    fn add(&mut self, run: usize, attempt: &Attempt) {
        let (position, span, setup) = (self.work.len(), &attempt.span, &attempt.setup);
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
        self.hosts
            .extend(span.boot_id.clone().zip(setup.host.clone()));
        let by_boot = span.boot_id.as_deref().zip(span.boot_us.clone());
        let (boot_id, time) = match by_boot.filter(|_| !self.clocks_agree) {
            Some((boot_id, time)) => (Some(boot_id), Some(time)),
            None => (None, span.time_us.clone()),
        };
        let time = time.filter(|time| !time.is_empty());
        let time = time.map(|time| (self.clock(boot_id), time));
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
        let mut clocks = self
            .work_of(run)
            .iter()
            .filter_map(|work| work.time.as_ref());
        let is_timed = clocks.clone().next().is_some();
        let is_seen = clocks.any(|(clock, _)| self.is_seen[*clock]);
        is_timed && !is_seen && self.is_seen.contains(&true)
    }

    fn work_of(&self, run: usize) -> &[Work] {
        let first = self.work.partition_point(|work| work.run < run);
        &self.work[first..self.work.partition_point(|work| work.run <= run)]
    }

    /// Returns when runs were at work on the GPU `uuid`: one that they name, or any if they name none and are not on a CPU. `None`
    /// if no run was.
    pub(super) fn on_gpu(&self, uuid: &str) -> Option<Schedule> {
        let named = self.named.get(uuid).into_iter().flatten();
        let mut positions = named.chain(&self.on_any).peekable();
        positions.peek()?;
        Some(Schedule::new(positions.map(|&place| &self.work[place])))
    }

    /// Returns how long any of the chosen runs was at work.
    pub(super) fn us_of_any(&self, runs: impl Iterator<Item = usize>) -> i64 {
        Schedule::new(runs.flat_map(|run| self.work_of(run))).us
    }

    /// Returns the parts of a time in which runs were at work, on a GPU if it has a schedule of its own. Without any runs, all of the
    /// time counts.
    pub(super) fn during<'a>(
        &'a self,
        own: Option<&'a Schedule>,
        clock: usize,
        time: &Range<i64>,
    ) -> Vec<Part<'a>> {
        if self.is_empty() {
            let all = Some((length(time), &NOBODY));
            return all.into_iter().filter(|(us, _)| *us > 0).collect();
        }
        own.unwrap_or(&self.all).during(clock, time)
    }

    /// Returns for how long runs were at work between two moments.
    pub(super) fn used_us(&self, own: Option<&Schedule>, from: Option<Moment>, to: Moment) -> i64 {
        let time = since(from, to);
        let parts = time.map(|time| self.during(own, to.clock, &time));
        parts.into_iter().flatten().map(|(us, _)| us).sum()
    }

    /// Returns how long any run was at work.
    pub(super) fn us(&self) -> i64 {
        self.all.us
    }

    /// Returns the name of the machine with a boot, if a run tells it.
    pub(super) fn host_of(&self, boot_id: &str) -> Option<&String> {
        self.hosts.get(boot_id)
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
            let parts = times.during(None, clock, &time).into_iter();
            let parts = parts.map(|(us, runs)| (us, runs.iter().copied().collect()));
            let found: Vec<(i64, Vec<usize>)> = parts.collect();
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        let length_us = |run| times.us_of_any([run].into_iter());
        assert_eq!([0, 1, 2].map(length_us), [15_000_000, 15_000_000, 0]);
        // The clocks are said to agree.
        let mut times = WorkTimes::new(attempts(), true);
        let Moment { clock, at_us } = times.place(&at(Some(("other", 18.0)), 10_250));
        let time = at_us - 1_000_000..at_us;
        let parts = times.during(None, clock, &time);
        assert_eq!(parts, [(250_000, &BTreeSet::from([0]))]);
    }

    #[test]
    fn a_time_counts_once_however_many_runs_are_at_work() {
        let attempts = [attempt(None, 10, 20), attempt(None, 15, 30)];
        let times = WorkTimes::new(attempts.iter().enumerate(), false);
        assert_eq!(times.us(), 20_000_000);
    }
}
