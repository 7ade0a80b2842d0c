//! The runs of a log.

use std::collections::HashMap;

use serde::Serialize;

use super::run::{RunCount, RunSummary};
use crate::Timestamp;
use crate::event::Event;

/// The runs of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
        let position = self.positions.get(run).copied().unwrap_or_else(|| {
            self.positions.insert(run.clone(), self.counts.len());
            self.counts.push(RunCount::new(run));
            self.counts.len() - 1
        });
        self.counts[position].add(event);
    }

    /// When each run was at work, by the clock on the wall.
    pub fn seen(&self) -> Vec<(Timestamp, Timestamp)> {
        self.counts.iter().filter_map(RunCount::seen).collect()
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
    fn a_clock_that_jumps_back_changes_no_rate_and_gives_no_negative_window() {
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
        let (first, last) = runs.seen()[0];
        assert!(first < last);
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
        assert_eq!((once[0].rejected, once[0].notes.len()), (2, 1));
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
