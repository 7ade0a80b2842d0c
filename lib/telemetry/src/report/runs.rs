//! The runs of a log.

use std::collections::HashMap;

use serde::Serialize;

use super::pictures::MOST_RUNS;
use super::run::{RunCount, RunSummary};
use super::session::Session;
use crate::event::Event;

/// The runs of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunsSummary {
    /// Whether the log ends in a torn line, which was left out.
    pub torn_last_line: bool,
    /// The runs, by their first event.
    pub runs: Vec<RunSummary>,
}

/// Takes in events, in any order, of any number of runs.
///
/// ```
/// use plmkit_telemetry::event::{BatchDone, Event, RunDone};
/// use plmkit_telemetry::report::Runs;
///
/// let mut runs = Runs::default();
/// let run = || "r".to_owned();
/// runs.add(Event::Batch(BatchDone { run: run(), sequences: 2, tokens: 90, residues: 86, ..BatchDone::default() }));
/// runs.add(Event::Done(RunDone { run: run(), tokens: 90, elapsed_s: 1.5, ..RunDone::default() }));
/// let summary = runs.finish(false);
/// assert_eq!(summary.runs[0].throughput.tokens_per_s, Some(60.0));
/// assert_eq!(summary.runs[0].stages.compute, None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Runs {
    counts: Vec<RunCount>,
    positions: HashMap<String, usize>,
    /// The run of the event before.
    last: usize,
}

impl Runs {
    /// Takes in an event.
    pub fn add(&mut self, event: Event) {
        let run = match &event {
            Event::Run(started) => &started.run,
            Event::Batch(batch) => &batch.run,
            Event::Done(done) => &done.run,
            Event::Probe(_) => return,
        };
        let position = self.position(run);
        self.last = position;
        self.counts[position].add(event);
    }

    /// Nearly always that of the event before, which takes no hashing.
    fn position(&mut self, run: &str) -> usize {
        let last = self.counts.get(self.last);
        if last.is_some_and(|last| last.run() == run) {
            return self.last;
        }
        if let Some(&position) = self.positions.get(run) {
            return position;
        }
        let position = self.counts.len();
        self.positions.insert(run.to_owned(), position);
        self.counts.push(RunCount::new(run, position < MOST_RUNS));
        position
    }

    /// The sessions of each run.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &[Session]> {
        self.counts.iter().map(RunCount::sessions)
    }

    /// What the events say.
    pub fn finish(self, torn_last_line: bool) -> RunsSummary {
        RunsSummary {
            torn_last_line,
            runs: self.counts.into_iter().map(RunCount::finish).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{BatchDone, Outcome, RunDone, RunStarted};

    fn batch(run: &str, tokens: u64, elapsed_s: f64) -> Event {
        Event::Batch(BatchDone {
            run: run.to_owned(),
            batch: (elapsed_s * 1000.0) as u64,
            sequences: 1,
            tokens,
            residues: tokens - 2,
            elapsed_s: Some(elapsed_s),
            ..BatchDone::default()
        })
    }

    fn summary(events: impl IntoIterator<Item = Event>) -> Vec<RunSummary> {
        let mut runs = Runs::default();
        events.into_iter().for_each(|event| runs.add(event));
        runs.finish(false).runs
    }

    #[test]
    fn interleaved_runs_are_told_apart() {
        let runs = summary([batch("b", 10, 1.0), batch("a", 5, 1.0), batch("b", 20, 2.0)]);
        assert_eq!(
            runs.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(),
            ["b", "a"]
        );
        assert_eq!(
            (runs[0].batches, runs[0].tokens, runs[0].residues),
            (2, 30, 26)
        );
        assert_eq!(runs[0].throughput.tokens_per_s, Some(15.0));
        assert_eq!(runs[1].throughput.tokens_per_s, Some(5.0));
    }

    #[test]
    fn a_killed_run_is_measured_to_its_last_batch() {
        let runs = summary([batch("r", 10, 2.0), batch("r", 10, 1.0)]);
        assert_eq!((runs[0].elapsed_s, runs[0].outcome), (Some(2.0), None));
        assert!(runs[0].notes[0].starts_with("the run has no end"));
    }

    #[test]
    fn a_run_without_batches_has_rates_of_zero_over_real_time_and_unknown_means() {
        let done = RunDone {
            run: "r".to_owned(),
            elapsed_s: 3.0,
            ..RunDone::default()
        };
        let runs = summary([Event::Done(done)]);
        assert_eq!(runs[0].throughput.tokens_per_s, Some(0.0));
        assert_eq!(runs[0].outcome, Some(Outcome::Done));
        assert_eq!(
            (runs[0].queue.state, runs[0].packing.mean_utilization),
            (None, None)
        );
        assert!(runs[0].notes.is_empty());
    }

    #[test]
    fn no_elapsed_time_gives_no_rates() {
        let done = RunDone {
            run: "r".to_owned(),
            elapsed_s: 0.0,
            ..RunDone::default()
        };
        assert_eq!(
            summary([Event::Done(done)])[0].throughput.tokens_per_s,
            None
        );
        let started = RunStarted {
            run: "r".to_owned(),
            ..RunStarted::default()
        };
        assert_eq!(
            summary([Event::Run(started)])[0].throughput.tokens_per_s,
            None
        );
    }

    #[test]
    fn a_clock_that_jumps_back_changes_no_rate_and_begins_another_stretch() {
        let at = |event: Event, time: &str| match event {
            Event::Batch(batch) => Event::Batch(BatchDone {
                time: time.parse().ok(),
                ..batch
            }),
            other => other,
        };
        let mut runs = Runs::default();
        runs.add(at(batch("r", 10, 1.0), "2026-01-31T12:00:00Z"));
        runs.add(at(batch("r", 10, 2.0), "2026-01-31T11:00:00Z"));
        let sessions = runs.sessions().next().unwrap();
        let stretches = sessions[0].clock().stretches();
        assert!(
            stretches
                .iter()
                .all(|stretch| stretch.first_ms <= stretch.last_ms)
        );
        assert_eq!(stretches.len(), 2);
        assert_eq!(
            runs.finish(false).runs[0].throughput.tokens_per_s,
            Some(10.0)
        );
    }

    #[test]
    fn a_log_appended_to_itself_says_the_same_and_that_it_is_doubled() {
        let log = || {
            let mut slow = batch("r", 10, 1.0);
            if let Event::Batch(batch) = &mut slow {
                batch.compute_ms = Some(990.0);
                batch.rejected = 2;
            }
            let done = RunDone {
                run: "r".to_owned(),
                tokens: 10,
                elapsed_s: 1.0,
                ..RunDone::default()
            };
            [slow, Event::Done(done)]
        };
        let once = summary(log());
        let mut twice = summary(log().into_iter().chain(log()));
        let note = "batch events that are there again are counted once: 1";
        assert_eq!(twice[0].notes.pop().as_deref(), Some(note));
        assert_eq!(twice, once);
        assert_eq!((once[0].rejected, once[0].notes.len()), (2, 0));
    }

    fn started(run: &str, time: &str) -> Event {
        Event::Run(RunStarted {
            run: run.to_owned(),
            time: time.parse().ok(),
            device: Some("cpu".to_owned()),
            flops_per_token: Some(7),
            flops_per_pair: Some(0),
            ..RunStarted::default()
        })
    }

    fn numbered(run: &str, number: u64, elapsed_s: f64) -> Event {
        Event::Batch(BatchDone {
            run: run.to_owned(),
            batch: number,
            tokens: 10,
            pairs: Some(100),
            elapsed_s: Some(elapsed_s),
            ..BatchDone::default()
        })
    }

    fn done(run: &str, tokens: u64, elapsed_s: f64) -> Event {
        Event::Done(RunDone {
            run: run.to_owned(),
            tokens,
            elapsed_s,
            ..RunDone::default()
        })
    }

    /// Killed after 4 s, with batch 1 not saved; started again, and done after 3 s more.
    fn resumed(second: &str) -> Vec<Event> {
        vec![
            started("r", "2026-01-31T12:00:00Z"),
            numbered("r", 0, 2.0),
            numbered("r", 1, 4.0),
            started(second, "2026-01-31T12:10:00Z"),
            numbered(second, 1, 1.0),
            numbered(second, 2, 2.5),
            done(second, 20, 3.0),
        ]
    }

    #[test]
    fn a_run_that_goes_on_under_its_name_took_the_time_of_both() {
        let runs = summary(resumed("r"));
        assert_eq!(runs.len(), 1);
        let run = &runs[0];
        assert_eq!((run.sessions, run.batches, run.tokens), (2, 3, 30));
        assert_eq!(run.elapsed_s, Some(7.0));
        assert_eq!(run.throughput.tokens_per_s, Some(30.0 / 7.0));
        assert_eq!((run.flops, run.outcome), (Some(210.0), Some(Outcome::Done)));
        let notes = [
            "it was started 2 times: time is that of all of them",
            "batch events that are there again are counted once: 1",
        ];
        assert_eq!(run.notes, notes);
        let time = run.started.map(|time| time.to_string());
        assert_eq!(time.as_deref(), Some("2026-01-31T12:00:00.000Z"));
    }

    #[test]
    fn a_run_that_goes_on_under_another_name_is_another() {
        let runs = summary(resumed("s"));
        let figures = runs
            .iter()
            .map(|run| (run.tokens, run.elapsed_s, run.outcome));
        let expected = [(20, Some(4.0), None), (20, Some(3.0), Some(Outcome::Done))];
        assert_eq!(figures.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn two_sessions_in_a_log_that_is_there_twice_are_two() {
        let once = summary(resumed("r"));
        let mut twice = summary(resumed("r").into_iter().chain(resumed("r")));
        assert_eq!(
            twice[0].notes.pop().as_deref(),
            Some("batch events that are there again are counted once: 5")
        );
        let mut once = once;
        once[0].notes.pop();
        assert_eq!(twice, once);
    }

    #[test]
    fn a_run_that_goes_on_elsewhere_has_no_single_figure() {
        let mut events = resumed("r");
        if let Event::Run(started) = &mut events[3] {
            started.device = Some("cuda:0".to_owned());
        }
        let run = &summary(events)[0];
        assert_eq!((run.flops, run.tokens), (None, 30));
        assert!(run.notes[1].starts_with("it went on with other devices"));
    }

    #[test]
    fn lost_events_are_noticed() {
        let done = RunDone {
            run: "r".to_owned(),
            tokens: 30,
            elapsed_s: 3.0,
            ..RunDone::default()
        };
        let runs = summary([batch("r", 10, 1.0), Event::Done(done)]);
        assert_eq!(
            runs[0].notes,
            ["events are missing: the batches hold 10 tokens, the run says 30"]
        );
    }
}
