//! When runs were at work on which GPUs, by the clocks that events and samples share.

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
    /// Extends the span to an event, and to what began some seconds before it.
    pub(super) fn add(&mut self, event: &Event, begun_s: f64) {
        if let Event::Run(started) = event {
            self.boot_id.clone_from(&started.boot_id);
        }
        let time_us = event.time().map(time_of_day_us);
        for before_s in [0.0, begun_s] {
            let boot_s = event.boot_s().map(|boot_s| boot_s - before_s);
            extend(&mut self.boot_us, boot_s.map(micros));
            extend(&mut self.time_us, time_us.map(|us| us - micros(before_s)));
        }
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
    /// The GPUs that it names.
    gpu_uuids: Vec<String>,
}

impl Work {
    pub(super) fn new(run: usize, span: &TimeSpan, started: Option<&RunStarted>) -> Self {
        let gpu_uuids = started.and_then(|started| started.gpu_uuids.clone());
        Self {
            run,
            span: span.clone(),
            host: started.and_then(|started| started.host.clone()),
            on_gpus: started.is_some_and(|started| started.device.as_deref() != Some("cpu")),
            gpu_uuids: gpu_uuids.unwrap_or_default(),
        }
    }

    /// Whether it computed on the GPU `uuid`: one that it names, or any if it names none and is not on a CPU.
    pub(super) fn uses(&self, uuid: Option<&str>) -> bool {
        match self.gpu_uuids[..] {
            [] => self.on_gpus,
            ref named => named.iter().any(|named| Some(named.as_str()) == uuid),
        }
    }
}

/// A moment by one of the clocks of [`WorkTimes`], in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) clock: usize,
    pub(super) at_us: i64,
}

/// The seconds of one boot, or the time of day.
#[derive(Clone, Debug, Default)]
struct Clock {
    /// `None` for the time of day.
    boot_id: Option<String>,
    /// Whether a sample has this clock.
    is_seen: bool,
    /// The time of all work, cut wherever work begins or ends; each piece with the positions of its work.
    pieces: Vec<(Range<i64>, Vec<usize>)>,
}

/// The work of all runs over time.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkTimes {
    work: Vec<Work>,
    clocks: Vec<Clock>,
}

impl WorkTimes {
    pub(super) fn new(work: impl Iterator<Item = Work>) -> Self {
        let mut times = Self {
            work: work.collect(),
            clocks: vec![Clock::default()],
        };
        let spans = times.work.iter().map(|work| &work.span);
        let boots = spans.filter_map(|span| span.boot_us.as_ref().and(span.boot_id.clone()));
        for boot_id in boots.collect::<Vec<_>>() {
            times.boot_clock(&boot_id);
        }
        for clock in 0..times.clocks.len() {
            times.clocks[clock].pieces = times.pieces(clock);
        }
        times
    }

    /// Cuts the time of all work by a clock into pieces.
    fn pieces(&self, clock: usize) -> Vec<(Range<i64>, Vec<usize>)> {
        let all = self.work.iter().enumerate();
        let spans = all.filter_map(|(position, work)| Some((position, self.span(work, clock)?)));
        let edges = spans.flat_map(|(position, span)| {
            [(span.start, true, position), (span.end, false, position)]
        });
        let mut edges: Vec<(i64, bool, usize)> = edges.collect();
        edges.sort_unstable();
        let (mut pieces, mut active, mut from_us) = (Vec::new(), Vec::new(), i64::MIN);
        for (at_us, begins, position) in edges {
            if from_us < at_us && !active.is_empty() {
                pieces.push((from_us..at_us, active.clone()));
            }
            from_us = at_us;
            if begins {
                active.push(position);
            } else {
                active.retain(|&active| active != position);
            }
        }
        pieces
    }

    /// Returns when work was done by a clock; `None` if it has no time by that clock, or no length.
    fn span(&self, work: &Work, clock: usize) -> Option<Range<i64>> {
        let span = &work.span;
        let time = match &self.clocks[clock].boot_id {
            Some(boot_id) if span.boot_id.as_ref() == Some(boot_id) => &span.boot_us,
            None if !span.is_set() => &span.time_us,
            _ => &None,
        };
        time.clone().filter(|time| !time.is_empty())
    }

    fn boot_clock(&mut self, boot_id: &str) -> usize {
        let known = self.find_boot(boot_id);
        known.unwrap_or_else(|| {
            self.clocks.push(Clock {
                boot_id: Some(boot_id.to_owned()),
                ..Clock::default()
            });
            self.clocks.len() - 1
        })
    }

    fn find_boot(&self, boot_id: &str) -> Option<usize> {
        let mut clocks = self.clocks.iter();
        clocks.position(|clock| clock.boot_id.as_deref() == Some(boot_id))
    }

    /// Whether the time of any run is known.
    pub(super) fn are_known(&self) -> bool {
        let known = |work: &Work| work.span.boot_us.is_some() || work.span.time_us.is_some();
        self.work.iter().any(known)
    }

    /// Whether any run used the GPU `uuid`.
    pub(super) fn are_on(&self, uuid: Option<&str>) -> bool {
        self.work.iter().any(|work| work.uses(uuid))
    }

    /// Whether there is no run.
    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Returns the time of a sample by the clock that joins it with runs: the seconds since boot if a run has its boot id, so
    /// that a set clock does no harm, or if there is no run; else the time of day.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Moment {
        if self.clocks.is_empty() {
            self.clocks.push(Clock::default());
        }
        let boot = sample.boot_time();
        let boot = boot.and_then(|(boot_id, boot_s)| {
            let clock = match self.find_boot(boot_id) {
                None if !self.are_known() => Some(self.boot_clock(boot_id)),
                known => known,
            };
            Some((clock?, micros(boot_s)))
        });
        let (clock, at_us) = boot.unwrap_or_else(|| (0, time_of_day_us(sample.timestamp)));
        self.clocks[clock].is_seen = true;
        Moment { clock, at_us }
    }

    /// Returns the parts of a time in which work was done, each with its length in microseconds and its work.
    pub(super) fn parts(
        &self,
        clock: usize,
        time: Range<i64>,
    ) -> impl Iterator<Item = (i64, Vec<&Work>)> {
        let pieces = &self.clocks[clock].pieces;
        let first = pieces.partition_point(|(piece, _)| piece.end <= time.start);
        let pieces = pieces[first..].iter();
        let (from, to) = (time.start, time.end);
        pieces
            .take_while(move |(piece, _)| piece.start < to)
            .map(move |(piece, work)| {
                let work = work.iter().map(|&position| &self.work[position]);
                (piece.end.min(to) - piece.start.max(from), work.collect())
            })
    }

    /// Returns the name of the machine with a boot, if a run tells it.
    pub(super) fn host_of(&self, boot_id: &str) -> Option<&String> {
        let mut of_boot = self
            .work
            .iter()
            .filter(|work| work.span.boot_id.as_deref() == Some(boot_id));
        of_boot.find_map(|work| work.host.as_ref())
    }

    /// Whether a clock joins work with samples.
    pub(super) fn is_by(&self, work: &Work, clock: usize) -> bool {
        self.joined(work).is_some_and(|(joined, _)| joined == clock)
    }

    /// Returns when work was done, by the clock that joins it with samples.
    fn joined(&self, work: &Work) -> Option<(usize, Range<i64>)> {
        let boot_id = work.span.boot_id.as_deref();
        let boot = boot_id.and_then(|boot_id| self.find_boot(boot_id));
        let seen = boot.filter(|&clock| self.clocks[clock].is_seen);
        let mut clocks = [seen, Some(0), boot].into_iter().flatten();
        clocks.find_map(|clock| Some((clock, self.span(work, clock)?)))
    }

    /// Returns how long any of the chosen work was done, in microseconds.
    pub(super) fn time_us(&self, is_chosen: impl Fn(&Work) -> bool) -> i64 {
        let chosen = self.work.iter().filter(|work| is_chosen(work));
        let mut times: Vec<_> = chosen.filter_map(|work| self.joined(work)).collect();
        times.sort_by_key(|(clock, time)| (*clock, time.start));
        // The end of the times so far, with its clock: times may overlap.
        let mut end = (0, i64::MIN);
        let lengths = times.into_iter().map(|(clock, time)| {
            let (_, from_us) = end.max((clock, time.start));
            end = end.max((clock, time.end));
            end.1 - from_us
        });
        lengths.sum()
    }

    /// Returns the times of a run's processes, each with its clock.
    pub(super) fn times_of(&self, run: usize) -> impl Iterator<Item = (usize, Range<i64>)> {
        let of_run = self.work.iter().filter(move |work| work.run == run);
        of_run.filter_map(|work| self.joined(work))
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::BatchDone;

    use super::*;

    fn work(run: usize, boot_id: Option<&str>, first: u32, last: u32) -> Work {
        let time = |second: u32| format!("1970-01-01T00:00:{second}Z").parse().ok();
        let mut span = TimeSpan::default();
        span.add(
            &Event::Run(RunStarted {
                boot_id: boot_id.map(str::to_owned),
                boot_s: boot_id.map(|_| f64::from(first)),
                time: time(first),
                ..RunStarted::default()
            }),
            0.0,
        );
        span.add(
            &Event::Batch(BatchDone {
                boot_s: boot_id.map(|_| f64::from(last)),
                time: time(last),
                ..BatchDone::default()
            }),
            0.0,
        );
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
            (1, Some("b"), 15, 30),
            (0, Some("a"), 20, 25),
            (2, None, 40, 40),
        ];
        let work = spans.map(|(run, boot_id, first, last)| work(run, boot_id, first, last));
        let mut times = WorkTimes::new(work.into_iter());
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
            (Some(("other", 18.0)), 10_250, &[(250_000, vec![0])]),
            (None, 15_500, &[(500_000, vec![0]), (500_000, vec![0, 1])]),
            (None, 30_250, &[(750_000, vec![1])]),
            (None, 40_500, &[]),
        ] {
            let Moment { clock, at_us } = times.place(&at(boot_time, time_ms));
            let parts = times.parts(clock, at_us - 1_000_000..at_us);
            let parts = parts.map(|(us, work)| (us, work.iter().map(|work| work.run).collect()));
            let found: Vec<(i64, Vec<usize>)> = parts.collect();
            assert_eq!(found, expected, "{boot_time:?} {time_ms}");
        }
        let length_us = |run| times.time_us(|work| work.run == run);
        assert_eq!([0, 1, 2].map(length_us), [15_000_000, 15_000_000, 0]);
        assert!(times.are_known() && !WorkTimes::default().are_known());
    }

    #[test]
    fn a_time_counts_once_however_many_runs_are_at_work() {
        let work = [work(0, None, 10, 20), work(1, None, 15, 30)];
        let times = WorkTimes::new(work.into_iter());
        assert_eq!(times.time_us(|_| true), 20_000_000);
        assert_eq!(
            times.times_of(1).collect::<Vec<_>>(),
            [(0, 15_000_000..30_000_000)]
        );
    }
}
