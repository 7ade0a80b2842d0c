//! The runs of a log.

use std::collections::HashMap;

use serde::Serialize;

use plmkit_logs::event::Event;

use super::pictures::MOST_RUNS;
use super::run::{RunCount, RunSummary};
use super::time_span::TimeSpans;

/// The runs of a log.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunsSummary {
    /// Whether the log ends in a torn line, which was left out.
    pub torn_last_line: bool,
    /// The runs, by their first event.
    pub runs: Vec<RunSummary>,
}

/// Sums over the events of any number of runs, in any order.
///
/// ```
/// use plmkit_logs::event::{BatchDone, Event, RunDone};
/// use plmkit_telemetry::report::Runs;
///
/// let mut runs = Runs::default();
/// let run = || "r".to_owned();
/// runs.add(&Event::Batch(BatchDone { run: run(), sequences: 2, tokens: 90, residues: 86, ..BatchDone::default() }));
/// runs.add(&Event::Done(RunDone { run: run(), tokens: 90, elapsed_s: 1.5, ..RunDone::default() }));
/// let summary = runs.finish(false);
/// assert_eq!(summary.runs[0].throughput.tokens_per_s, Some(60.0));
/// assert_eq!(summary.runs[0].stages.compute, None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Runs {
    counts: Vec<RunCount>,
    /// Of each name of a run, the position of the run and of the attempt.
    places: HashMap<String, (usize, usize)>,
    /// The name and the place of the event before.
    last: Option<(String, (usize, usize))>,
}

impl Runs {
    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        let Some(run) = event.run() else { return };
        let (count, attempt) = match &self.last {
            // Nearly always, which takes no hashing.
            Some((last, place)) if last == run => *place,
            _ => self.place(run, event),
        };
        self.counts[count].add(attempt, event);
    }

    /// The place of a run: of one that is new, beside the interrupted run of the same job, if there is one.
    fn place(&mut self, run: &str, event: &Event) -> (usize, usize) {
        let known = self.places.get(run).copied();
        let place = known.unwrap_or_else(|| {
            let job = match event {
                Event::Run(started) => started.job.as_deref(),
                _ => None,
            };
            let unfinished = |job| {
                self.counts
                    .iter()
                    .rposition(|count| count.is_unfinished(job))
            };
            let position = job.and_then(unfinished).unwrap_or_else(|| {
                self.counts
                    .push(RunCount::new(self.counts.len() < MOST_RUNS));
                self.counts.len() - 1
            });
            (position, self.counts[position].begin_attempt())
        });
        self.places.insert(run.to_owned(), place);
        self.last = Some((run.to_owned(), place));
        place
    }

    /// When runs were at work.
    pub(super) fn time_spans(&self) -> TimeSpans {
        let counts = self.counts.iter().enumerate();
        TimeSpans::new(counts.flat_map(|(position, count)| {
            let attempts = count.attempts().iter();
            attempts.map(move |attempt| (position, &attempt.span))
        }))
    }

    /// The runs, by their first event. `torn_last_line` says whether the log ends in a torn line, which was left out.
    pub fn finish(self, torn_last_line: bool) -> RunsSummary {
        let mut names = vec![String::new(); self.counts.len()];
        let mut places: Vec<_> = self.places.into_iter().collect();
        places.sort_by_key(|&(_, place)| place);
        for (run, (position, _)) in places {
            names[position] = run;
        }
        let runs = self.counts.into_iter().zip(names);
        RunsSummary {
            torn_last_line,
            runs: runs.map(|(count, run)| count.finish(run)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plmkit_logs::event::{BatchDone, Outcome, RunDone, RunStarted};

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
        events.into_iter().for_each(|event| runs.add(&event));
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

    fn started(run: &str, job: &str, time: &str) -> Event {
        Event::Run(RunStarted {
            run: run.to_owned(),
            job: Some(job.to_owned()),
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

    /// Killed after 4 s, with batch 1 not saved; started again, for the same job or another, and done after 3 s more.
    fn resumed(second_job: &str) -> Vec<Event> {
        vec![
            started("r1", "job", "2026-01-31T12:00:00Z"),
            numbered("r1", 0, 2.0),
            numbered("r1", 1, 4.0),
            started("r2", second_job, "2026-01-31T12:10:00Z"),
            numbered("r2", 1, 1.0),
            numbered("r2", 2, 2.5),
            done("r2", 20, 3.0),
        ]
    }

    #[test]
    fn an_interrupted_run_that_goes_on_took_the_time_of_both_attempts() {
        let runs = summary(resumed("job"));
        assert_eq!(runs.len(), 1);
        let run = &runs[0];
        assert_eq!((run.run.as_str(), run.job.as_deref()), ("r2", Some("job")));
        assert_eq!((run.attempts, run.batches, run.tokens), (2, 3, 30));
        assert_eq!(run.elapsed_s, Some(7.0));
        assert_eq!(run.throughput.tokens_per_s, Some(30.0 / 7.0));
        assert_eq!((run.flops, run.outcome), (Some(210.0), Some(Outcome::Done)));
        let notes = [
            "it was interrupted and went on: the time is that of 2 attempts",
            "batch events that are there again are counted once: 1",
        ];
        assert_eq!(run.notes, notes);
        let time = run.started.map(|time| time.to_string());
        assert_eq!(time.as_deref(), Some("2026-01-31T12:00:00.000Z"));
    }

    #[test]
    fn other_work_and_the_same_work_again_are_other_runs() {
        let runs = summary(resumed("other"));
        let figures = runs
            .iter()
            .map(|run| (run.tokens, run.elapsed_s, run.outcome));
        let expected = [(20, Some(4.0), None), (20, Some(3.0), Some(Outcome::Done))];
        assert_eq!(figures.collect::<Vec<_>>(), expected);
        let again = [
            started("r3", "job", "2026-01-31T13:00:00Z"),
            done("r3", 0, 9.0),
        ];
        let runs = summary(resumed("job").into_iter().chain(again));
        let names: Vec<_> = runs.iter().map(|run| run.run.as_str()).collect();
        assert_eq!(names, ["r2", "r3"]);
    }

    #[test]
    fn two_attempts_in_a_log_that_is_there_twice_are_two() {
        let mut once = summary(resumed("job"));
        let mut twice = summary(resumed("job").into_iter().chain(resumed("job")));
        assert_eq!(
            twice[0].notes.pop().as_deref(),
            Some("batch events that are there again are counted once: 5")
        );
        once[0].notes.pop();
        assert_eq!(twice, once);
    }

    #[test]
    fn a_run_that_goes_on_elsewhere_has_no_single_figure() {
        let mut events = resumed("job");
        if let Event::Run(started) = &mut events[3] {
            started.device = Some("cuda:0".to_owned());
        }
        let run = &summary(events)[0];
        assert_eq!((run.flops, run.tokens), (None, 30));
        assert!(run.notes[1].starts_with("it went on with other devices"));
    }

    #[test]
    fn operations_are_unknown_where_a_part_of_them_is() {
        let flops = |per_pair, pairs| {
            let Event::Run(mut start) = started("r", "job", "") else {
                unreachable!()
            };
            start.flops_per_pair = per_pair;
            let Event::Batch(mut batch) = numbered("r", 0, 1.0) else {
                unreachable!()
            };
            batch.pairs = pairs;
            summary([Event::Run(start), Event::Batch(batch)])[0].flops
        };
        assert_eq!(flops(Some(2), Some(60)), Some(70.0 + 120.0));
        assert_eq!(flops(None, Some(60)), None);
        assert_eq!(flops(Some(2), None), None);
    }

    #[test]
    fn lost_events_are_noticed() {
        let runs = summary([batch("r", 10, 1.0), done("r", 30, 3.0)]);
        assert_eq!(
            runs[0].notes,
            ["events are missing: the batches hold 10 tokens, the run says 30"]
        );
    }
}
