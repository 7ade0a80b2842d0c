//! When runs were at work on which GPUs, by the clocks that events and samples share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use plmkit_logs::GpuSample;
use rangemap::RangeMap;

use super::attempt::Attempt;
use super::moments::{CLOCK, Moment, length, micros, time_of_day_us};

/// More runs at once on one GPU are not told apart: it keeps the memory in proportion to the log.
const MAX_AT_ONCE: usize = 64;

/// When runs were at work, on one GPU or on any.
#[derive(Clone, Debug, Default)]
pub(super) struct BusyTimes {
    /// Disjoint times, each with the runs that were at work, by their positions. On any GPU, runs are not told apart.
    pieces: RangeMap<Moment, Vec<usize>>,
    /// How long each run was at work, and any of them.
    runs_us: HashMap<usize, i64>,
    pub(super) us: i64,
}

impl BusyTimes {
    /// Adds a time, if it is known, of a run, if it is told apart.
    fn add(&mut self, time: Option<&Range<Moment>>, run: Option<usize>) {
        let Some(time) = time else { return };
        let busy = self.pieces.overlapping(time);
        let busy = busy.map(|(piece, runs)| (cut(piece, time), runs.clone()));
        let gaps: Vec<Range<Moment>> = self.pieces.gaps(time).collect();
        let new_us = gaps.iter().map(length);
        self.us = new_us.fold(self.us, i64::saturating_add);
        let gaps = gaps.into_iter().map(|gap| (gap, Vec::new()));
        for (piece, mut runs) in busy.chain(gaps).collect::<Vec<_>>() {
            if let Some(run) = run.filter(|run| runs.len() < MAX_AT_ONCE && !runs.contains(run)) {
                runs.push(run);
                let of_run = self.runs_us.entry(run).or_default();
                *of_run = of_run.saturating_add(length(&piece));
            }
            self.pieces.insert(piece, runs);
        }
    }

    /// Returns how long a run was at work.
    pub(super) fn us_of(&self, run: usize) -> i64 {
        self.runs_us.get(&run).copied().unwrap_or(0)
    }

    /// Returns the parts of a time in which runs were at work: their lengths in microseconds, and the runs that are told apart.
    pub(super) fn during<'a>(
        &'a self,
        time: &'a Range<Moment>,
    ) -> impl Iterator<Item = (i64, &'a [usize])> {
        let inside = self.pieces.overlapping(time);
        let parts = inside.map(|(piece, runs)| (length(&cut(piece, time)), &runs[..]));
        parts.filter(|(us, _)| *us > 0)
    }
}

fn cut(piece: &Range<Moment>, time: &Range<Moment>) -> Range<Moment> {
    piece.start.max(time.start)..piece.end.min(time.end)
}

/// The work of all runs over time. Work and samples are joined if they have one clock: that of their boot, or the time of day
/// if they name none. The times of day of two machines may differ, so that they join nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkTimes {
    /// The clock of each boot id, and the time of day.
    by_boot: HashMap<Option<String>, Moment>,
    /// Whether the times of day of all machines agree: they are the only clock then.
    clocks_agree: bool,
    /// The clocks of the samples, and of each run.
    seen: HashSet<Moment>,
    of_runs: HashMap<usize, Vec<Moment>>,
    /// The work on any GPU. Without any runs, all of the time counts.
    pub(super) all: BusyTimes,
    pub(super) has_runs: bool,
    /// The work on each GPU that is named and not [taken](Self::take) out, and the work that may have used any.
    pub(super) named: HashMap<String, BusyTimes>,
    on_any: Vec<(usize, Option<Range<Moment>>)>,
}

impl WorkTimes {
    /// `attempts` come with the positions of their runs. With `clocks_agree`, boot ids do not matter.
    pub(super) fn new<'a>(
        attempts: impl Iterator<Item = (usize, &'a Attempt)>,
        clocks_agree: bool,
    ) -> Self {
        let mut times = Self {
            clocks_agree,
            ..Self::default()
        };
        for (run, attempt) in attempts {
            times.has_runs = true;
            times.add(run, attempt);
        }
        if !times.has_runs {
            times.all.add(Some(&(0..Moment::MAX)), None);
        }
        times
    }

    fn add(&mut self, run: usize, attempt: &Attempt) {
        let setup = &attempt.setup;
        let by_boot = setup.boot_id.as_deref().zip(attempt.boot_us.clone());
        let (boot_id, time) = match by_boot.filter(|_| !self.clocks_agree) {
            Some((boot_id, time)) => (Some(boot_id), Some(time)),
            None => (None, attempt.time_us.clone()),
        };
        let time = time.filter(|time| !time.is_empty()).map(|time| {
            let clock = self.clock(boot_id);
            self.of_runs.entry(run).or_default().push(clock);
            let [start, end] = [time.start, time.end].map(|us| clock * CLOCK + Moment::from(us));
            start..end
        });
        let uuids: BTreeSet<&String> = setup.gpu_uuids.iter().flatten().collect();
        for &uuid in &uuids {
            let named = self.named.entry(uuid.clone()).or_default();
            named.add(time.as_ref(), Some(run));
        }
        self.all.add(time.as_ref(), None);
        // A run without a start is not known to have computed on a GPU.
        let on_gpus = attempt.is_started && setup.device.as_deref() != Some("cpu");
        if on_gpus && uuids.is_empty() {
            self.on_any.push((run, time));
        }
    }

    /// Returns the clock of a boot, or the time of day.
    fn clock(&mut self, boot_id: Option<&str>) -> Moment {
        let next = self.by_boot.len() as Moment;
        let boot_id = boot_id.map(str::to_owned);
        *self.by_boot.entry(boot_id).or_insert(next)
    }

    /// Returns the time of a sample by its clock.
    pub(super) fn place(&mut self, sample: &GpuSample) -> Moment {
        let by_boot = sample.boot_time().filter(|_| !self.clocks_agree);
        let clock = self.clock(by_boot.map(|(boot_id, _)| boot_id));
        self.seen.insert(clock);
        let at_us = by_boot.map(|(_, boot_s)| micros(boot_s));
        let at_us = at_us.unwrap_or_else(|| time_of_day_us(sample.timestamp));
        clock * CLOCK + Moment::from(at_us)
    }

    /// Whether there are samples, and none has a clock of a run.
    pub(super) fn is_apart(&self, run: usize) -> bool {
        let clocks = self.of_runs.get(&run);
        let is_apart = |clocks: &Vec<_>| !clocks.iter().any(|clock| self.seen.contains(clock));
        !self.seen.is_empty() && clocks.is_some_and(is_apart)
    }

    /// Takes out when runs were at work on the GPU `uuid`: one that they name, or any if they name none and are not on a CPU. `None`
    /// if no run was.
    pub(super) fn take(&mut self, uuid: &str) -> Option<BusyTimes> {
        let mut own = self.named.remove(uuid);
        for (run, time) in &self.on_any {
            let own = own.get_or_insert_default();
            own.add(time.as_ref(), Some(*run));
        }
        own
    }
}
