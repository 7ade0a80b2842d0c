//! All runs of which events were read.

use std::collections::HashMap;
use std::time::Duration;

use super::run::LiveRun;
use super::{RunState, RunStatus};
use plmkit_logs::Timestamp;
use plmkit_logs::event::Event;

/// All runs of which events were read, by their names. Reads no clock and no file.
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
    runs: HashMap<String, LiveRun>,
}

impl LiveRuns {
    /// Takes in an event. `written` is when its log was written last, for an event that does not say when it was.
    pub fn add(&mut self, event: &Event, written: Timestamp) {
        let Some(run) = event.run() else { return };
        let time = event.time().unwrap_or(written);
        let live = self.runs.entry(run.to_owned());
        live.or_insert_with(|| LiveRun::new(time)).add(event, time);
    }

    /// Lets go of the runs that have ended and of which nothing was heard for longer than `keep`. One that has not ended may
    /// go on, and its log is not read again from its beginning.
    pub fn forget(&mut self, now: Timestamp, keep: Duration) {
        self.runs
            .retain(|_, run| !run.has_ended() || run.was_heard(now, keep));
    }

    /// Where all stand: those at work first, then by when something was heard of them, the latest first.
    pub fn status(&self, now: Timestamp) -> Vec<RunStatus> {
        self.status_of_recent(now, Duration::MAX)
    }

    /// The same of those of which something was heard within `keep`.
    pub fn status_of_recent(&self, now: Timestamp, keep: Duration) -> Vec<RunStatus> {
        let mut all: Vec<RunStatus> = self
            .runs
            .values()
            .filter(|run| run.was_heard(now, keep))
            .filter_map(|run| run.status(now))
            .collect();
        all.sort_by(|a, b| {
            let at_work = |status: &RunStatus| status.state != RunState::Running;
            (at_work(a).cmp(&at_work(b)))
                .then(b.last_event.cmp(&a.last_event))
                .then_with(|| a.summary.run.cmp(&b.summary.run))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use plmkit_logs::event::Outcome;

    use super::*;
    use crate::tests;

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let time = chrono::DateTime::from_timestamp_millis(start.unix_ms() + seconds * 1000);
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
            (done.tokens, done.outcome) = (100, outcome);
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
    fn progress_counts_what_was_saved_and_time_left_is_that_of_the_recent_rate() {
        let batches =
            [(2, 10), (3, 12), (4, 14)].map(|(number, second)| batch("r", number, second));
        let runs = runs([started(Some(800))].into_iter().chain(batches));
        let status = runs.status(at(15)).pop().unwrap();
        let progress = &status.progress;
        assert_eq!((status.state, status.silence_s), (RunState::Running, 1.0));
        assert_eq!((progress.batches, progress.batches_total), (5, Some(10)));
        assert_eq!(
            (progress.share, progress.eta_s),
            (Some(300.0 / 800.0), Some(10.0))
        );
        assert_eq!(status.recent.tokens_per_s, Some(50.0));
    }

    #[test]
    fn without_tokens_the_share_is_that_of_batches() {
        let progress = |events: &[Event]| {
            let mut all = runs(events.iter().cloned()).status(at(11));
            all.pop().unwrap().progress
        };
        let known = progress(&[started(None), batch("r", 2, 10)]);
        assert_eq!((known.share, known.eta_s), (Some(0.3), None));
        let unknown = progress(&[batch("r", 2, 10)]);
        assert_eq!((unknown.share, unknown.batches), (None, 1));
    }

    #[test]
    fn a_run_is_silent_after_a_time_that_its_batches_do_not_take() {
        let fast = vec![batch("r", 0, 10), batch("r", 1, 11)];
        let slow = vec![batch("r", 0, 10), batch("r", 1, 110)];
        for (events, last) in [(fast, 71), (slow, 610), (vec![started(None)], 600)] {
            let runs = runs(events);
            let state = |second| runs.status(at(second))[0].state;
            assert_eq!(
                [state(last), state(last + 1)],
                [RunState::Running, RunState::Silent]
            );
        }
    }

    #[test]
    fn an_ended_run_is_never_silent_and_has_no_time_left() {
        for (outcome, state) in [
            (Outcome::Done, RunState::Done),
            (Outcome::Stopped, RunState::Stopped),
            (Outcome::Failed, RunState::Failed),
        ] {
            let events = [
                started(None),
                batch("r", 0, 10),
                batch("r", 1, 11),
                done("r", 12, outcome),
            ];
            let status = runs(events).status(at(1_000_000)).pop().unwrap();
            assert_eq!((status.state, status.progress.eta_s), (state, None));
            assert_eq!(
                status.recent.tokens_per_s, None,
                "nothing is recent any more"
            );
        }
    }

    #[test]
    fn runs_at_work_come_first_and_old_ones_are_let_go() {
        let old = done("old", 5, Outcome::Done);
        let mut runs = runs([
            old,
            batch("at work", 0, 60),
            done("ended", 70, Outcome::Done),
        ]);
        let names = |runs: &LiveRuns| {
            let all = runs.status(at(80)).into_iter();
            all.map(|status| status.summary.run).collect::<Vec<_>>()
        };
        assert_eq!(names(&runs), ["at work", "ended", "old"]);
        // A clock that goes back forgets nothing.
        for now in [80, -80] {
            runs.forget(at(now), Duration::from_secs(20));
            assert_eq!(names(&runs), ["at work", "ended"]);
        }
    }

    #[test]
    fn a_run_that_pauses_comes_back_as_it_was() {
        let mut runs = runs([started(Some(800)), batch("r", 2, 10)]);
        let (keep, hour) = (Duration::from_secs(20), 3600);
        runs.forget(at(hour), keep);
        assert!(runs.status_of_recent(at(hour), keep).is_empty());
        runs.add(&batch("r", 3, hour), at(hour));
        let progress = runs
            .status_of_recent(at(hour), keep)
            .pop()
            .unwrap()
            .progress;
        assert_eq!((progress.batches, progress.batches_total), (4, Some(10)));
        assert_eq!(progress.tokens_total, Some(800));
    }

    #[test]
    fn a_log_that_is_read_again_counts_once() {
        let log = [
            started(None),
            batch("r", 0, 0),
            batch("r", 1, 1),
            batch("r", 2, 2),
        ];
        let status = |events: &[Event]| {
            let mut status = runs(events.iter().cloned()).status(at(9)).remove(0);
            status.summary.notes.clear();
            status
        };
        assert_eq!(status(&log), status(&[&log[..], &log].concat()));
    }
}
