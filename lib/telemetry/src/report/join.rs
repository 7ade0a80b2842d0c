//! Which samples belong to a run.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::near;
use super::count::Count;
use super::recordings::Recordings;
use super::windows::Window;

/// Samples of a recording that lie between the same borders of runs, by a clock that was not set in between: interval,
/// recording, stretch of its clock.
pub(super) type Cell = (usize, usize, usize);

/// A cell that a window holds.
struct Candidate {
    cell: Cell,
    samples: u64,
    /// Those of them that are of the run's GPUs.
    own: u64,
    /// How far into the recording the session would have begun, if both saw the same clock.
    into_ms: Option<i64>,
}

/// The cells that belong to a run with these windows on these GPUs, if it names any.
///
/// A clock that is set back shows the same time of day twice: a window then holds samples of before, or of after. But a
/// session begins once in a recording. If several cells say different things about when, those that agree on most samples
/// are right. Cells of the run's own GPUs come first: others may be of another machine.
pub(super) fn join(
    windows: &[Window],
    uuids: &[String],
    cells: &BTreeMap<Cell, Count>,
    recordings: &Recordings,
) -> BTreeSet<Cell> {
    let within = |window: &Window| {
        let inside = cells.range((window.intervals.start, 0, 0)..(window.intervals.end, 0, 0));
        let (session, began_ms) = (window.session, window.began_ms);
        inside.map(move |(&cell, count)| {
            let (_, recording, stretch) = cell;
            let stretch = recordings.get(recording).clock.stretches()[stretch];
            let candidate = Candidate {
                cell,
                samples: count.samples,
                own: count.samples_of(uuids),
                into_ms: began_ms
                    .zip(stretch.began_ms)
                    .map(|(run, recording)| run - recording),
            };
            ((session, recording), candidate)
        })
    };
    let mut candidates: Vec<_> = windows.iter().flat_map(within).collect();
    if candidates.iter().any(|(_, candidate)| candidate.own > 0) {
        candidates.retain(|(_, candidate)| candidate.own > 0);
    }
    let mut groups: BTreeMap<(usize, usize), Vec<Candidate>> = BTreeMap::new();
    for (group, candidate) in candidates {
        groups.entry(group).or_default().push(candidate);
    }
    let right = groups.into_values().flat_map(|candidates| {
        let best = best(&candidates);
        let agrees = move |into_ms: i64| best.is_some_and(|best| near(into_ms, best));
        let right = candidates
            .into_iter()
            .filter(move |candidate| candidate.into_ms.is_none_or(agrees));
        right.map(|candidate| candidate.cell)
    });
    right.collect()
}

/// When the session began in the recording, as most samples have it; the first of equals.
fn best(candidates: &[Candidate]) -> Option<i64> {
    let votes = |into_ms: i64| {
        let agreeing = candidates
            .iter()
            .filter(|other| other.into_ms.is_some_and(|other| near(other, into_ms)));
        agreeing.map(|candidate| candidate.samples).sum::<u64>()
    };
    let known = candidates.iter().filter_map(|candidate| candidate.into_ms);
    known
        .map(|into_ms| (votes(into_ms), into_ms))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, into_ms)| into_ms)
}

#[cfg(test)]
mod tests {
    use super::super::{Report, RunSummary, Runs, Samples};
    use crate::event::{BatchDone, Event, RunDone, RunStarted};
    use crate::{GpuSample, Timestamp};

    /// Noon, in ms since 1970.
    const NOON_MS: i64 = 1_769_860_800_000;

    fn at(second: i64) -> Timestamp {
        let time = chrono::DateTime::from_timestamp_millis(NOON_MS + second * 1000);
        time.unwrap().into()
    }

    /// A run of 60 s on a GPU, a batch a second, that begins in second `begins` of true time, with a clock that is set by
    /// `jump` seconds in second `set`.
    fn run(name: &str, uuid: &str, begins: i64, set: i64, jump: i64) -> Vec<Event> {
        let wall = |second: i64| at(second + if second >= set { jump } else { 0 });
        let mut events = vec![Event::Run(RunStarted {
            run: name.to_owned(),
            time: Some(wall(begins)),
            device: Some("cuda".to_owned()),
            gpu_uuids: Some(vec![uuid.to_owned()]),
            ..RunStarted::default()
        })];
        for second in 1..=60 {
            events.push(Event::Batch(BatchDone {
                run: name.to_owned(),
                batch: second as u64,
                time: Some(wall(begins + second)),
                elapsed_s: Some(second as f64),
                residues: 1000,
                ..BatchDone::default()
            }));
        }
        events.push(Event::Done(RunDone {
            run: name.to_owned(),
            time: Some(wall(begins + 60)),
            elapsed_s: 60.0,
            ..RunDone::default()
        }));
        events
    }

    /// 200 s of a GPU, recorded from second 0 of true time, that is busy and uses 500 W while `busy`, else 100 W.
    fn recording(uuid: &str, busy: std::ops::Range<i64>, set: i64, jump: i64) -> Vec<GpuSample> {
        let mut energy_j = 0.0;
        let samples = (0..200).map(|second| {
            // What it used since the sample before.
            energy_j += if busy.contains(&(second - 1)) {
                500.0
            } else {
                100.0
            };
            GpuSample {
                index: Some(0),
                uuid: Some(uuid.to_owned()),
                gpu_util: Some(if busy.contains(&second) { 100 } else { 0 }),
                energy_j: Some(energy_j),
                elapsed_s: Some(second as f64),
                ..GpuSample::at(at(second + if second >= set { jump } else { 0 }))
            }
        });
        samples.collect()
    }

    fn joined(events: Vec<Event>, samples: &[GpuSample]) -> Vec<RunSummary> {
        let mut runs = Runs::default();
        for event in events {
            runs.add(event);
        }
        let mut joined = Samples::during(&runs);
        for sample in samples {
            joined.add(sample);
        }
        let events = runs.finish(false);
        let samples = joined.finish(false, Some(&events));
        Report::new(Some(events), Some(samples), None)
            .events
            .unwrap()
            .runs
    }

    /// Mean utilisation and residues for each joule of a run, and its samples.
    fn figures(run: &RunSummary) -> (Option<f64>, Option<f64>, u64) {
        let gpu = &run.gpus.as_ref().unwrap()[0];
        (
            gpu.mean_utilization,
            run.efficiency.residues_per_joule,
            gpu.samples,
        )
    }

    #[test]
    fn a_run_has_the_samples_and_the_energy_of_its_time() {
        let samples = recording("GPU-0", 100..161, 999, 0);
        let runs = joined(run("a", "GPU-0", 100, 999, 0), &samples);
        // 60,000 residues with 500 W over 60 s.
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
        assert_eq!(runs[0].efficiency.energy_j, Some(30_000.0));
    }

    #[test]
    fn a_clock_that_is_set_during_the_run_brings_in_no_samples_of_other_times() {
        for jump in [3600, -3600, 30, -30, -90] {
            let samples = recording("GPU-0", 100..161, 130, jump);
            let runs = joined(run("a", "GPU-0", 100, 130, jump), &samples);
            assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61), "{jump} s");
            assert_eq!(runs[0].elapsed_s, Some(60.0));
        }
    }

    #[test]
    fn a_clock_that_was_set_before_the_run_leaves_the_samples_of_the_same_time_of_day_out() {
        let samples = recording("GPU-0", 100..161, 60, -60);
        let runs = joined(run("a", "GPU-0", 100, 60, -60), &samples);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
    }

    #[test]
    fn a_recorder_that_was_started_again_goes_on_for_the_run() {
        let mut samples = recording("GPU-0", 100..161, 999, 0);
        for (second, sample) in samples.iter_mut().enumerate().skip(130) {
            sample.elapsed_s = Some(second as f64 - 130.0);
        }
        samples.remove(129);
        let runs = joined(run("a", "GPU-0", 100, 999, 0), &samples);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 60));
    }

    #[test]
    fn runs_of_two_machines_have_the_samples_of_their_own_gpus() {
        let events = || {
            let other = run("b", "GPU-1", 100, 999, 0);
            run("a", "GPU-0", 100, 999, 0)
                .into_iter()
                .chain(other)
                .collect()
        };
        // The log of one machine knows nothing of the other.
        let runs = joined(events(), &recording("GPU-0", 100..161, 999, 0));
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
        assert_eq!(figures(&runs[1]), (None, None, 0));
        // Two recorders in one log.
        let second = recording("GPU-1", 120..161, 999, 0)
            .into_iter()
            .map(|sample| GpuSample {
                elapsed_s: sample.elapsed_s.map(|elapsed_s| elapsed_s + 5000.0),
                ..sample
            });
        let first = recording("GPU-0", 100..161, 999, 0);
        let both: Vec<_> = first
            .into_iter()
            .zip(second)
            .flat_map(|(one, other)| [one, other])
            .collect();
        let runs = joined(events(), &both);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 61));
        let (utilization, _, samples) = figures(&runs[1]);
        assert_eq!(
            (utilization.map(|mean| (mean * 61.0).round()), samples),
            (Some(41.0), 61)
        );
    }

    #[test]
    fn samples_without_elapsed_times_are_joined_by_the_time_of_day() {
        let mut samples = recording("GPU-0", 100..161, 999, 0);
        for sample in &mut samples {
            (sample.elapsed_s, sample.power_w) = (None, Some(250.0));
        }
        let runs = joined(run("a", "GPU-0", 100, 999, 0), &samples);
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(4.0), 61));
    }

    #[test]
    fn a_run_that_is_at_work_is_measured_so_far() {
        let mut events = run("a", "GPU-0", 100, 999, 0);
        events.truncate(31);
        let runs = joined(events, &recording("GPU-0", 100..200, 999, 0));
        assert_eq!((runs[0].outcome, runs[0].elapsed_s), (None, Some(30.0)));
        assert_eq!(figures(&runs[0]), (Some(1.0), Some(2.0), 31));
    }

    #[test]
    fn two_sessions_of_a_run_have_the_samples_of_both() {
        let mut events = run("a", "GPU-0", 20, 999, 0);
        events.truncate(31);
        events.extend(run("a", "GPU-0", 100, 999, 0));
        let runs = joined(events, &recording("GPU-0", 20..161, 999, 0));
        assert_eq!((runs[0].sessions, runs[0].elapsed_s), (2, Some(90.0)));
        let (utilization, residues_per_joule, samples) = figures(&runs[0]);
        assert_eq!((utilization, samples), (Some(1.0), 31 + 61));
        // Thirty batches were computed twice and count once.
        assert_eq!(residues_per_joule, Some(60_000.0 / (500.0 * 90.0)));
    }
}
