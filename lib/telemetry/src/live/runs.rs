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
    use super::*;
    use plmkit_logs::event::{BatchDone, Outcome, RunDone, RunStarted};

    fn at(seconds: i64) -> Timestamp {
        let start: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        chrono::DateTime::from_timestamp_millis(start.unix_ms() + seconds * 1000)
            .unwrap()
            .into()
    }

    fn started(run: &str) -> RunStarted {
        RunStarted {
            run: run.to_owned(),
            time: Some(at(0)),
            batches_total: Some(8),
            batches_saved: Some(2),
            tokens_total: Some(800),
            ..RunStarted::default()
        }
    }

    fn batch(run: &str, number: u64, second: i64) -> Event {
        Event::Batch(BatchDone {
            run: run.to_owned(),
            batch: number,
            time: Some(at(second)),
            elapsed_s: Some(second as f64),
            sequences: 1,
            tokens: 100,
            residues: 98,
            ..BatchDone::default()
        })
    }

    fn done(run: &str, second: i64, outcome: Outcome) -> Event {
        Event::Done(RunDone {
            run: run.to_owned(),
            time: Some(at(second)),
            tokens: 100,
            elapsed_s: second as f64,
            outcome,
            ..RunDone::default()
        })
    }

    fn runs(events: impl IntoIterator<Item = Event>) -> LiveRuns {
        let mut runs = LiveRuns::default();
        events.into_iter().for_each(|event| runs.add(&event, at(0)));
        runs
    }

    #[test]
    fn progress_counts_what_was_saved_and_time_left_is_that_of_the_recent_rate() {
        let runs = runs([
            Event::Run(started("r")),
            batch("r", 2, 10),
            batch("r", 3, 12),
            batch("r", 4, 14),
        ]);
        let status = runs.status(at(15)).pop().unwrap();
        assert_eq!(status.state, RunState::Running);
        assert_eq!(
            (status.progress.batches, status.progress.batches_total),
            (5, Some(10))
        );
        assert_eq!(status.progress.share, Some(300.0 / 800.0));
        assert_eq!(status.recent.tokens_per_s, Some(50.0));
        assert_eq!(status.progress.eta_s, Some(10.0));
        assert!((status.silence_s - 1.0).abs() < 1e-9);
    }

    #[test]
    fn without_tokens_the_share_is_that_of_batches() {
        let unknown = RunStarted {
            tokens_total: None,
            ..started("r")
        };
        let status = runs([Event::Run(unknown), batch("r", 2, 10)])
            .status(at(11))
            .pop()
            .unwrap();
        assert_eq!(
            (status.progress.share, status.progress.eta_s),
            (Some(0.3), None)
        );
        let status = runs([batch("r", 2, 10)]).status(at(11)).pop().unwrap();
        assert_eq!((status.progress.share, status.progress.batches), (None, 1));
    }

    #[test]
    fn a_run_is_silent_after_a_time_that_its_batches_do_not_take() {
        let state = |runs: &LiveRuns, second| runs.status(at(second))[0].state;
        let fast = runs([batch("r", 0, 10), batch("r", 1, 11)]);
        assert_eq!(state(&fast, 71), RunState::Running);
        assert_eq!(state(&fast, 72), RunState::Silent);
        let slow = runs([batch("r", 0, 10), batch("r", 1, 110)]);
        assert_eq!(state(&slow, 610), RunState::Running);
        assert_eq!(state(&slow, 611), RunState::Silent);
        let loading = runs([Event::Run(started("r"))]);
        assert_eq!(state(&loading, 600), RunState::Running);
        assert_eq!(state(&loading, 601), RunState::Silent);
    }

    #[test]
    fn an_ended_run_is_never_silent_and_has_no_time_left() {
        for (outcome, state) in [
            (Outcome::Done, RunState::Done),
            (Outcome::Stopped, RunState::Stopped),
            (Outcome::Failed, RunState::Failed),
        ] {
            let runs = runs([
                Event::Run(started("r")),
                batch("r", 0, 10),
                batch("r", 1, 11),
                done("r", 12, outcome),
            ]);
            let status = runs.status(at(1_000_000)).pop().unwrap();
            assert_eq!((status.state, status.progress.eta_s), (state, None));
            assert_eq!(
                status.recent.tokens_per_s, None,
                "nothing is recent any more"
            );
        }
    }

    #[test]
    fn runs_at_work_come_first_and_old_ones_are_let_go() {
        let mut runs = runs([
            done("old", 5, Outcome::Done),
            batch("at work", 0, 60),
            done("ended", 70, Outcome::Done),
        ]);
        let names = |runs: &LiveRuns| {
            let all = runs.status(at(80)).into_iter();
            all.map(|status| status.summary.run).collect::<Vec<_>>()
        };
        assert_eq!(names(&runs), ["at work", "ended", "old"]);
        runs.forget(at(80), Duration::from_secs(20));
        assert_eq!(names(&runs), ["at work", "ended"]);
        runs.forget(at(-80), Duration::from_secs(20));
        assert_eq!(
            names(&runs),
            ["at work", "ended"],
            "a clock that went back forgets nothing"
        );
    }

    #[test]
    fn a_run_that_pauses_comes_back_as_it_was() {
        let mut runs = runs([Event::Run(started("r")), batch("r", 2, 10)]);
        let (keep, hour) = (Duration::from_secs(20), 3600);
        runs.forget(at(hour), keep);
        assert!(runs.status_of_recent(at(hour), keep).is_empty());
        runs.add(&batch("r", 3, hour), at(hour));
        let status = runs.status_of_recent(at(hour), keep).pop().unwrap();
        assert_eq!(
            (status.progress.batches, status.progress.batches_total),
            (4, Some(10))
        );
        assert_eq!(status.progress.tokens_total, Some(800));
    }

    #[test]
    fn a_log_that_is_read_again_counts_once() {
        let log = || {
            let run = Event::Run(started("r"));
            [run]
                .into_iter()
                .chain((0..4_i64).map(|n| batch("r", n.unsigned_abs(), n)))
        };
        let (once, twice) = (runs(log()), runs(log().chain(log())));
        let (mut once, mut twice) = (once.status(at(9)), twice.status(at(9)));
        once[0].summary.notes.clear();
        twice[0].summary.notes.clear();
        assert_eq!(once, twice);
    }
}
