//! When runs were at work on which GPUs, by the clocks that events and samples share.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use plmkit_logs::event::{Event, RunStarted};
use plmkit_logs::{GpuSample, Timestamp};

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
    /// How far the time of day was ahead of the elapsed time of the process, in microseconds.
    ahead_us: Option<Range<i64>>,
}

/// A clock that differs from elapsed time by more was set, a part in a thousand aside: clocks are slewed.
const SET_CLOCK_US: i64 = 2_000_000;

impl TimeSpan {
    /// Extends the span to an event.
    pub(super) fn add(&mut self, event: &Event) {
        if let Event::Run(started) = event {
            self.boot_id.clone_from(&started.boot_id);
        }
        let time_us = event.time().map(time_of_day_us);
        extend(&mut self.boot_us, event.boot_s().map(micros));
        extend(&mut self.time_us, time_us);
        let elapsed_s = match event {
            Event::Run(_) => Some(0.0),
            Event::Batch(batch) => batch.elapsed_s,
            Event::Done(done) => Some(done.elapsed_s),
            Event::Probe(_) | Event::Unknown => None,
        };
        let ahead_us = time_us.zip(elapsed_s.map(micros));
        extend(
            &mut self.ahead_us,
            ahead_us.map(|(time, elapsed)| time - elapsed),
        );
    }

    /// Whether the clock was set meanwhile, so that the time of day tells neither when nor for how long it was at work.
    pub(super) fn is_set(&self) -> bool {
        let length = |range: &Option<Range<i64>>| range.as_ref().map_or(0, |of| of.end - of.start);
        length(&self.ahead_us) > SET_CLOCK_US + length(&self.time_us) / 1000
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
pub(super) struct Work {
    /// The position of its run.
    pub(super) run: usize,
    span: TimeSpan,
    /// The name of its machine.
    host: Option<String>,
    /// Whether it may have computed on a GPU. A run without a start is not known to.
    on_gpus: bool,
    /// The GPUs that it names, in the order of their UUIDs.
    gpu_uuids: Vec<String>,
}

impl Work {
    pub(super) fn new(run: usize, span: &TimeSpan, started: Option<&RunStarted>) -> Self {
        Self {
            run,
            span: span.clone(),
            host: started.and_then(|started| started.host.clone()),
            on_gpus: started.is_some_and(|started| started.device.as_deref() != Some("cpu")),
            gpu_uuids: started.map(different_gpus).unwrap_or_default(),
        }
    }

    /// Whether it computed on the GPU `uuid`: one that it names, or any if it names none and is not on a CPU.
    fn uses(&self, uuid: Option<&str>) -> bool {
        if self.gpu_uuids.is_empty() {
            return self.on_gpus;
        }
        let uuid = uuid.unwrap_or_default();
        let found = self.gpu_uuids.binary_search_by(|named| (**named).cmp(uuid));
        found.is_ok()
    }
}

/// Returns the GPUs that a process names, each once: two workers may share one.
pub(super) fn different_gpus(started: &RunStarted) -> Vec<String> {
    let mut uuids = started.gpu_uuids.clone().unwrap_or_default();
    uuids.sort_unstable();
    uuids.dedup();
    uuids
}

/// A moment by one of the clocks of [`WorkTimes`], in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) clock: usize,
    pub(super) at_us: i64,
}

/// The clock of samples without a boot id: the time of day.
const DAY: usize = 0;

/// The clock of samples whose boot is that of no run: the time of day, for runs without a boot id. The clocks of two machines
/// may differ, so a run with another boot id has no time by it unless the reader says that they agree.
const OTHER_DAY: usize = 1;

/// Work at one time that is told apart, and positions of work in all pieces: they keep memory in proportion to the log.
const MAX_AT_ONCE: usize = 4096;
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

/// The work of all runs over time.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkTimes {
    work: Vec<Work>,
    clocks: Vec<Clock>,
    /// The clock of each boot id.
    boots: HashMap<String, usize>,
    /// Whether the clocks of all machines agree.
    clocks_agree: bool,
    /// The positions of the work that names each GPU, and of the work that may have used any.
    named: HashMap<String, Vec<usize>>,
    on_any: Vec<usize>,
    /// Whether the time of any run is known.
    are_known: bool,
}

impl WorkTimes {
    /// `work` is in the order of the runs. With `clocks_agree`, boot ids do not matter.
    pub(super) fn new(work: impl Iterator<Item = Work>, clocks_agree: bool) -> Self {
        let mut times = Self {
            work: work.collect(),
            clocks: vec![Clock::default(); 2],
            clocks_agree,
            ..Self::default()
        };
        for position in 0..times.work.len() {
            let work = &times.work[position];
            for uuid in &work.gpu_uuids {
                let named = times.named.entry(uuid.clone()).or_default();
                named.push(position);
            }
            if work.uses(None) {
                times.on_any.push(position);
            }
            let span = &work.span;
            times.are_known |= span.boot_us.is_some() || span.time_us.is_some();
            let boot_id = span.boot_id.clone().filter(|_| span.boot_us.is_some());
            let boot = boot_id.filter(|_| !clocks_agree);
            let boot = boot.map(|boot_id| times.boot_clock(&boot_id));
            for clock in [DAY, OTHER_DAY].into_iter().chain(boot) {
                if times.span(position, clock).is_some() {
                    times.clocks[clock].work.push(position);
                }
            }
        }
        for clock in 0..times.clocks.len() {
            times.clocks[clock].pieces = times.pieces(clock);
        }
        times
    }

    /// Cuts the time of all work by a clock into pieces.
    fn pieces(&self, clock: usize) -> Vec<(Range<i64>, Vec<usize>)> {
        let all = self.clocks[clock].work.iter();
        let spans = all.filter_map(|&position| Some((position, self.span(position, clock)?)));
        let edges = spans.flat_map(|(position, span)| {
            [(span.start, true, position), (span.end, false, position)]
        });
        let mut edges: Vec<(i64, bool, usize)> = edges.collect();
        edges.sort_unstable();
        let (mut pieces, mut active, mut from_us) = (Vec::new(), BTreeSet::new(), i64::MIN);
        let mut left = MAX_POSITIONS;
        for (at_us, begins, position) in edges {
            let is_known = (1..=MAX_AT_ONCE.min(left)).contains(&active.len());
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

    /// Returns when work was done by a clock; `None` if it has no time by that clock, or no length.
    fn span(&self, position: usize, clock: usize) -> Option<Range<i64>> {
        let span = &self.work[position].span;
        let is_joined = clock == DAY || self.clocks_agree || span.boot_id.is_none();
        let time = match clock {
            DAY | OTHER_DAY if is_joined && !span.is_set() => &span.time_us,
            DAY | OTHER_DAY => &None,
            _ => &span.boot_us,
        };
        time.clone().filter(|time| !time.is_empty())
    }

    fn boot_clock(&mut self, boot_id: &str) -> usize {
        if let Some(&known) = self.boots.get(boot_id) {
            return known;
        }
        self.clocks.push(Clock::default());
        self.boots.insert(boot_id.to_owned(), self.clocks.len() - 1);
        self.clocks.len() - 1
    }

    /// Whether the time of any run is known.
    pub(super) fn are_known(&self) -> bool {
        self.are_known
    }

    /// Whether any run used the GPU `uuid`.
    pub(super) fn are_on(&self, uuid: Option<&str>) -> bool {
        !self.on_any.is_empty() || uuid.is_some_and(|uuid| self.named.contains_key(uuid))
    }

    /// Whether there is no run.
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Returns the time of a sample by the clock that joins it with runs: the seconds since boot if a run has its boot id, so
    /// that a set clock does no harm, or if there is no run; else the time of day.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Moment {
        if self.clocks.is_empty() {
            self.clocks = vec![Clock::default(); 2];
        }
        let day_us = time_of_day_us(sample.timestamp);
        let (clock, at_us) = match sample.boot_time() {
            None => (DAY, day_us),
            Some((boot_id, boot_s)) => match self.boots.get(boot_id) {
                Some(&clock) => (clock, micros(boot_s)),
                None if !self.are_known => (self.boot_clock(boot_id), micros(boot_s)),
                None => (OTHER_DAY, day_us),
            },
        };
        self.clocks[clock].is_seen = true;
        Moment { clock, at_us }
    }

    /// Whether a run has a boot id, and samples are there of other boots only: they are not joined.
    pub(super) fn is_of_other_boot(&self, run: usize) -> bool {
        let [day, other_day] = [DAY, OTHER_DAY].map(|clock| {
            let clock = self.clocks.get(clock);
            clock.is_some_and(|clock| clock.is_seen)
        });
        let mut work = self.positions_of(run);
        let is_apart = |position: usize| {
            let (clock, _) = self.joined(position)?;
            Some(clock > OTHER_DAY && !self.clocks[clock].is_seen)
        };
        other_day && !day && !self.clocks_agree && work.any(|of| is_apart(of) == Some(true))
    }

    /// Returns the parts of a time in which work was done, each with its length in microseconds and the positions of its work.
    fn parts(&self, clock: usize, time: Range<i64>) -> impl Iterator<Item = (i64, &[usize])> {
        let pieces = &self.clocks[clock].pieces;
        let first = pieces.partition_point(|(piece, _)| piece.end <= time.start);
        let pieces = pieces[first..].iter();
        let (from, to) = (time.start, time.end);
        pieces
            .take_while(move |(piece, _)| piece.start < to)
            .map(move |(piece, work)| (piece.end.min(to) - piece.start.max(from), &work[..]))
    }

    /// Returns the parts of some times in which chosen work was done, each with its length and the positions of that work.
    pub(super) fn parts_of(
        &self,
        clock: usize,
        all: &[Range<i64>],
        is_chosen: impl Fn(usize) -> bool,
    ) -> Vec<(i64, Vec<usize>)> {
        let parts = all.iter().flat_map(|time| self.parts(clock, time.clone()));
        let parts = parts.map(|(us, work)| {
            let work = work.iter().copied().filter(|&position| is_chosen(position));
            (us, work.collect::<Vec<_>>())
        });
        parts.filter(|(_, work)| !work.is_empty()).collect()
    }

    /// Whether a clock counts the seconds of a boot.
    pub(super) fn is_of_boot(clock: usize) -> bool {
        clock > OTHER_DAY
    }

    /// Returns the run of the work at a position.
    pub(super) fn run_of(&self, position: usize) -> usize {
        self.work[position].run
    }

    /// Whether the work at a position computed on the GPU `uuid`.
    pub(super) fn uses(&self, position: usize, uuid: Option<&str>) -> bool {
        self.work[position].uses(uuid)
    }

    /// Returns the positions of a run's processes.
    pub(super) fn positions_of(&self, run: usize) -> Range<usize> {
        let first = self.work.partition_point(|work| work.run < run);
        first..self.work.partition_point(|work| work.run <= run)
    }

    /// Returns the positions of the work that used the GPU `uuid`.
    pub(super) fn positions_on(&self, uuid: Option<&str>) -> impl Iterator<Item = usize> {
        let named = uuid.and_then(|uuid| self.named.get(uuid));
        named.into_iter().flatten().chain(&self.on_any).copied()
    }

    /// Returns how long any run was at work, in microseconds.
    pub(super) fn all_us(&self) -> i64 {
        self.time_us(0..self.work.len())
    }

    /// Returns the positions of the work that a clock joins with samples.
    pub(super) fn positions_by(&self, clock: usize) -> impl Iterator<Item = usize> {
        let all = self.clocks[clock].work.iter().copied();
        all.filter(move |&position| self.joined(position).is_some_and(|(by, _)| by == clock))
    }

    /// Returns the name of the machine with a boot, if a run tells it.
    pub(super) fn host_of(&self, boot_id: &str) -> Option<&String> {
        let of_boot = |work: &&Work| work.span.boot_id.as_deref() == Some(boot_id);
        let clock = self.boots.get(boot_id)?;
        let work = self.clocks[*clock]
            .work
            .iter()
            .map(|&position| &self.work[position]);
        work.filter(of_boot).find_map(|work| work.host.as_ref())
    }

    /// Returns when work was done, by the clock that joins it with samples.
    fn joined(&self, position: usize) -> Option<(usize, Range<i64>)> {
        let boot_id = self.work[position].span.boot_id.as_deref();
        let boot = boot_id.and_then(|boot_id| self.boots.get(boot_id).copied());
        let clocks = [boot, Some(DAY), Some(OTHER_DAY)].into_iter().flatten();
        let seen = clocks.filter(|&clock| self.clocks[clock].is_seen);
        let mut clocks = seen.chain(boot).chain([DAY]);
        clocks.find_map(|clock| Some((clock, self.span(position, clock)?)))
    }

    /// Returns how long any of the chosen work was done, in microseconds.
    pub(super) fn time_us(&self, chosen: impl Iterator<Item = usize>) -> i64 {
        let mut times: Vec<_> = chosen.filter_map(|work| self.joined(work)).collect();
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

    /// Returns the times of a run's processes on the GPU `uuid`, each with its clock and how long the run took before.
    pub(super) fn times_on(
        &self,
        run: usize,
        uuid: Option<&str>,
    ) -> impl Iterator<Item = (usize, Range<i64>, i64)> {
        let mut before_us = 0_i64;
        let all = self.positions_of(run).filter_map(move |position| {
            let (clock, time) = self.joined(position)?;
            let before = before_us;
            before_us = before_us.saturating_add(time.end - time.start);
            Some((position, clock, time, before))
        });
        let on = all.filter(move |&(position, ..)| self.uses(position, uuid));
        on.map(|(_, clock, time, before_us)| (clock, time, before_us))
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::BatchDone;

    use super::*;

    fn work(run: usize, boot_id: Option<&str>, first: u32, last: u32) -> Work {
        let time = |second: u32| format!("1970-01-01T00:00:{second}Z").parse().ok();
        let mut span = TimeSpan::default();
        span.add(&Event::Run(RunStarted {
            boot_id: boot_id.map(str::to_owned),
            boot_s: boot_id.map(|_| f64::from(first)),
            time: time(first),
            ..RunStarted::default()
        }));
        span.add(&Event::Batch(BatchDone {
            boot_s: boot_id.map(|_| f64::from(last)),
            time: time(last),
            ..BatchDone::default()
        }));
        Work::new(run, &span, None)
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
    fn samples_are_joined_by_the_boot_clock_if_a_run_has_their_boot_and_else_by_the_time_of_day() {
        let spans = [
            (0, Some("a"), 10, 20),
            (0, Some("a"), 20, 25),
            (1, Some("b"), 15, 30),
            (2, None, 40, 40),
        ];
        let work = spans.map(|(run, boot_id, first, last)| work(run, boot_id, first, last));
        let mut times = WorkTimes::new(work.clone().into_iter(), false);
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
            (None, 15_500, &[(500_000, vec![0]), (500_000, vec![0, 1])]),
            (None, 30_250, &[(750_000, vec![1])]),
            (None, 40_500, &[]),
        ] {
            let Moment { clock, at_us } = times.place(&at(boot_time, time_ms));
            let parts = times.parts(clock, at_us - 1_000_000..at_us);
            let run_of = |position: &usize| times.run_of(*position);
            let parts = parts.map(|(us, work)| (us, work.iter().map(run_of).collect()));
            let found: Vec<(i64, Vec<usize>)> = parts.collect();
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        let length_us = |run| times.time_us(times.positions_of(run));
        assert_eq!([0, 1, 2].map(length_us), [15_000_000, 15_000_000, 0]);
        assert!(times.are_known() && !WorkTimes::default().are_known());
        // The clocks are said to agree.
        let mut times = WorkTimes::new(work.into_iter(), true);
        let Moment { clock, at_us } = times.place(&at(Some(("other", 18.0)), 10_250));
        let parts = times.parts(clock, at_us - 1_000_000..at_us);
        assert_eq!(parts.map(|(us, _)| us).collect::<Vec<_>>(), [250_000]);
    }

    #[test]
    fn a_time_counts_once_however_many_runs_are_at_work() {
        let work = [work(0, None, 10, 20), work(1, None, 15, 30)];
        let times = WorkTimes::new(work.into_iter(), false);
        assert_eq!(times.all_us(), 20_000_000);
        assert_eq!(times.times_on(1, None).collect::<Vec<_>>(), []);
    }
}
