//! All runs whose events were read.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use super::run::LiveRun;
use super::{RunState, RunStatus};
use crate::report::number;
use plmkit_logs::Timestamp;
use plmkit_logs::event::{Event, RunStarted};

/// All runs whose events were read, by their names. Reads no clock and no file.
///
/// ```
/// use plmkit_logs::event::{BatchDone, Event, RunStarted};
/// use plmkit_telemetry::live::{LiveRuns, RunState};
///
/// let mut runs = LiveRuns::default();
/// let now = "2026-01-31T12:00:00Z".parse()?;
/// let run = || "r".to_owned();
/// runs.add(&Event::Run(RunStarted { run: run(), tokens_total: Some(40), ..RunStarted::default() }), now);
/// runs.add(&Event::Batch(BatchDone { run: run(), tokens: 10, elapsed_s: Some(2.0), ..BatchDone::default() }), now);
/// let status = &runs.status(now)[0];
/// assert_eq!((status.state, status.progress.share), (RunState::Running, Some(0.25)));
/// assert_eq!(status.progress.eta_s, Some(6.0));
/// # Ok::<(), chrono::ParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveRuns {
    /// The [name of the log](plmkit_logs::log_name) whose events are added next, if it is known.
    pub log: String,
    runs: HashMap<String, LiveRun>,
}

impl LiveRuns {
    /// Adds an event. An event without a time gets `written`, the time of the last write to its log.
    pub fn add(&mut self, event: &Event, written: Timestamp) {
        let Some(run) = event.run() else { return };
        let time = event.time().unwrap_or(written);
        let new = || LiveRun::new(run, &self.log);
        let live = self.runs.entry(run.to_owned()).or_insert_with(new);
        if live.is_other(event) {
            *live = new();
        }
        live.add(event, time);
    }

    /// Returns the status of all runs: those at work first, then by their last event, the latest first.
    pub fn status(&mut self, now: Timestamp) -> Vec<RunStatus> {
        self.status_of_recent(now, Duration::MAX, |_| false)
    }

    /// Returns the status of the runs with an event within `keep`, in the same order. `is_gone` tells whether the process of
    /// a run is known to be gone. An attempt that was interrupted is left out once a later run of the same job goes on.
    ///
    /// Other runs are dropped if they have ended. A run without an end may go on, and its log is not read from the beginning again.
    pub fn status_of_recent(
        &mut self,
        now: Timestamp,
        keep: Duration,
        is_gone: impl Fn(&RunStarted) -> bool,
    ) -> Vec<RunStatus> {
        self.runs
            .retain(|_, run| !run.has_ended || run.is_recent(now, keep));
        let runs = self.runs.values().filter(|run| run.is_recent(now, keep));
        let mut all: Vec<RunStatus> = runs.map(|run| run.status(now, &is_gone)).collect();
        let setups = all.iter().map(|run| &run.summary.setup);
        let mut starts: Vec<_> = setups.map(|run| (run.job.clone(), run.time)).collect();
        starts.sort();
        // The last start of each job.
        let starts: HashMap<Option<String>, Option<Timestamp>> = starts.into_iter().collect();
        all.retain(|run| {
            let job = &run.summary.setup.job;
            let is_over = !matches!(run.state, RunState::Running | RunState::Done);
            !(is_over && job.is_some() && starts[job] > Some(run.last_event))
        });
        all.sort_by_key(|status| status.summary.setup.time);
        number(all.iter_mut().map(|status| &mut status.summary));
        all.sort_by_cached_key(|status| {
            (
                status.state != RunState::Running,
                Reverse(status.last_event),
                status.summary.setup.run.clone(),
            )
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::Outcome;

    use super::*;
    use crate::live::LiveProgress;
    use crate::tests;

    fn at(seconds: i64) -> Timestamp {
        let time = chrono::DateTime::from_timestamp(1_769_860_800 + seconds, 0);
        time.unwrap().into()
    }

    fn started(tokens_total: Option<u64>) -> Event {
        tests::started(|run| {
            run.time = Some(at(0));
            (run.batches_total, run.batches_saved) = (Some(8), Some(2));
            run.tokens_total = tokens_total;
        })
    }

    fn batch(run: &str, number: u64, second: i64) -> Event {
        tests::batch(number, |batch| {
            run.clone_into(&mut batch.run);
            (batch.time, batch.elapsed_s) = (Some(at(second)), Some(second as f64));
            (batch.sequences, batch.tokens, batch.residues) = (1, 100, 98);
        })
    }

    fn done(run: &str, second: i64, outcome: Outcome) -> Event {
        tests::done(|done| {
            run.clone_into(&mut done.run);
            (done.time, done.elapsed_s) = (Some(at(second)), second as f64);
            done.outcome = outcome;
        })
    }

    fn runs(events: impl IntoIterator<Item = Event>) -> LiveRuns {
        let mut runs = LiveRuns::default();
        for event in events {
            runs.add(&event, at(0));
        }
        runs
    }

    #[test]
    fn progress_includes_saved_batches_and_the_eta_is_that_of_the_recent_rate() {
        let batches = [(2, 10), (3, 12), (4, 14)].map(|(number, at)| batch("r", number, at));
        let mut runs = runs([started(Some(800))].into_iter().chain(batches));
        let status = runs.status(at(15)).pop().unwrap();
        let expected = LiveProgress {
            batches: 5,
            batches_total: Some(10),
            // Two of ten batches were saved; of the other eight, 300 of 800 tokens are done.
            share: Some(0.5),
            eta_s: Some(9.0),
        };
        assert_eq!(status.progress, expected);
        assert_eq!((status.state, status.silence_s), (RunState::Running, 1.0));
        assert_eq!(status.recent.tokens_per_s, Some(50.0));
    }

    #[test]
    fn without_tokens_the_share_is_that_of_batches() {
        let progress = |events: Vec<Event>| {
            let progress = &runs(events).status(at(11))[0].progress;
            (progress.share, progress.eta_s, progress.batches)
        };
        let known = vec![started(None), batch("r", 2, 10)];
        assert_eq!(progress(known), (Some(0.3), None, 3));
        assert_eq!(progress(vec![batch("r", 2, 10)]), (None, None, 1));
    }

    #[test]
    fn a_run_is_silent_after_a_time_that_its_batches_do_not_take() {
        let fast = vec![batch("r", 0, 10), batch("r", 1, 11)];
        let slow = vec![batch("r", 0, 10), batch("r", 1, 110)];
        for (events, last) in [
            (fast, 41),
            (slow, 610),
            (vec![batch("r", 0, 10)], 60),
            (vec![started(None)], 600),
        ] {
            let mut runs = runs(events);
            let states = [last, last + 1].map(|second| runs.status(at(second))[0].state);
            assert_eq!(states, [RunState::Running, RunState::Silent]);
        }
    }

    #[test]
    fn a_run_whose_process_is_gone_is_not_running() {
        let begun = |second, end: Option<Event>| {
            let events = [started(Some(800)), batch("r", 2, 10)];
            let mut runs = runs(events.into_iter().chain(end));
            let is_gone = |run: &RunStarted| run.run == "r";
            let status = runs
                .status_of_recent(at(second), Duration::MAX, is_gone)
                .remove(0);
            (status.state, status.progress.eta_s.is_some())
        };
        assert_eq!(begun(12, None), (RunState::Running, true));
        assert_eq!(begun(13, None), (RunState::Gone, false));
        let end = done("r", 11, Outcome::Done);
        assert_eq!(begun(99, Some(end)), (RunState::Done, false));
    }

    #[test]
    fn an_interrupted_attempt_leaves_when_its_job_goes_on_and_other_work_does_not_hide_it() {
        let attempt = |name: &str, job: &str, second| {
            tests::started(|run| {
                name.clone_into(&mut run.run);
                (run.job, run.time) = (Some(job.to_owned()), Some(at(second)));
            })
        };
        let first = [attempt("first", "job", 0), batch("first", 0, 10)];
        let names = |second: Event, end: Option<Outcome>| {
            let end = end.map(|outcome| done("first", 11, outcome));
            let mut runs = runs(first.clone().into_iter().chain(end).chain([second]));
            let is_gone = |run: &RunStarted| run.run == "first";
            let all = runs.status_of_recent(at(31), Duration::MAX, is_gone);
            let names = all.into_iter().map(|status| status.summary.setup.run);
            names.collect::<Vec<_>>()
        };
        for end in [None, Some(Outcome::Stopped), Some(Outcome::Failed)] {
            assert_eq!(names(attempt("second", "job", 30), end), ["second"]);
            let both = ["second", "first"];
            assert_eq!(names(attempt("second", "other", 30), end), both);
            assert_eq!(names(attempt("second", "job", 9), end).len(), 2);
        }
        let repeated = names(attempt("second", "job", 30), Some(Outcome::Done));
        assert_eq!(repeated, ["second", "first"]);
    }

    #[test]
    fn an_ended_run_is_never_silent_and_has_no_recent_rate() {
        for (outcome, state) in [
            (Outcome::Done, RunState::Done),
            (Outcome::Stopped, RunState::Stopped),
            (Outcome::Failed, RunState::Failed),
        ] {
            let batches = [(0, 10), (1, 11)].map(|(number, at)| batch("r", number, at));
            let events = batches.into_iter().chain([done("r", 12, outcome)]);
            let status = runs(events).status(at(1_000_000)).pop().unwrap();
            assert_eq!((status.state, status.progress.eta_s), (state, None));
            assert_eq!(status.recent.tokens_per_s, None);
        }
    }

    #[test]
    fn runs_at_work_come_first_and_old_ones_are_dropped() {
        let old = done("old", 5, Outcome::Done);
        let ended = done("ended", 70, Outcome::Done);
        let mut runs = runs([old, batch("at work", 0, 60), ended]);
        let mut names = |now: i64, keep: Duration| {
            let all = runs.status_of_recent(at(now), keep, |_| false).into_iter();
            all.map(|status| status.summary.setup.run)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(80, Duration::MAX), ["at work", "ended", "old"]);
        // A clock that goes back drops nothing.
        for now in [80, -80] {
            let found = names(now, Duration::from_secs(20));
            assert_eq!(found, ["at work", "ended"]);
        }
        assert_eq!(names(80, Duration::MAX), ["at work", "ended"]);
    }

    #[test]
    fn a_run_that_pauses_keeps_its_counts() {
        let mut runs = runs([started(Some(800)), batch("r", 2, 10)]);
        let (keep, hour) = (Duration::from_secs(20), 3600);
        assert!(runs.status_of_recent(at(hour), keep, |_| false).is_empty());
        runs.add(&batch("r", 3, hour), at(hour));
        let progress = runs
            .status_of_recent(at(hour), keep, |_| false)
            .remove(0)
            .progress;
        assert_eq!((progress.batches, progress.batches_total), (4, Some(10)));
    }

    #[test]
    fn a_log_that_is_read_again_counts_once() {
        let batches = [(0, 0), (1, 1), (2, 2)].map(|(number, at)| batch("r", number, at));
        let log: Vec<Event> = [started(None)].into_iter().chain(batches).collect();
        let status = |events: Vec<Event>| {
            let mut status = runs(events).status(at(9)).remove(0);
            status.summary.notes.clear();
            status
        };
        assert_eq!(status(log.clone()), status([&log[..], &log].concat()));
    }
}
