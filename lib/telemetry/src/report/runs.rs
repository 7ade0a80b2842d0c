//! The runs of a log.

use std::collections::HashMap;

use plmkit_logs::event::{Event, Outcome};

use super::attempt::Attempt;
use super::run::{RunSummary, number};

/// Sums over the events of any number of runs, in any order.
///
/// ```
/// use plmkit_logs::event::{BatchDone, Event, RunDone};
/// use plmkit_telemetry::report::Runs;
///
/// let mut runs = Runs::default();
/// let run = || "r".to_owned();
/// runs.add(&Event::Batch(BatchDone { run: run(), sequences: 2, tokens: 90, residues: 86, ..BatchDone::default() }));
/// runs.add(&Event::Done(RunDone { run: run(), elapsed_s: 1.5, ..RunDone::default() }));
/// let run = &runs.finish()[0];
/// assert_eq!(run.throughput.tokens_per_s, Some(60.0));
/// assert!(!run.shares.contains_key("compute"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The attempts at each run.
    attempts_of: Vec<Vec<Attempt>>,
    /// For each name, the run and the attempt that had it last.
    places: HashMap<String, (usize, usize)>,
    /// For each job, its last run.
    jobs: HashMap<String, usize>,
    /// The [name of the log](plmkit_logs::log_name) whose events are added next, if it is known.
    pub log: String,
    /// The measured peak of each device, in 1e12 operations a second. Without it, the peak that belongs to the GPU's name counts.
    pub peak_tflops: Option<f64>,
}

impl Runs {
    /// Adds an event. A first event unlike that of a known run is of another run with its name; an equal one is a copy.
    pub fn add(&mut self, event: &Event) {
        let Some(run) = event.run() else { return };
        let known = self.places.get(run).copied();
        let known =
            known.filter(|&(count, attempt)| !self.attempts_of[count][attempt].is_other(event));
        let (count, attempt) = known.unwrap_or_else(|| {
            let place = self.new_place(run, event);
            self.places.insert(run.to_owned(), place);
            place
        });
        self.attempts_of[count][attempt].add(event);
        if let Event::Run(started) = event
            && let Some(job) = &started.job
        {
            self.jobs.insert(job.clone(), count);
        }
    }

    /// Returns the place of a new run: the next attempt at an interrupted run of the same job, if there is one.
    fn new_place(&mut self, run: &str, event: &Event) -> (usize, usize) {
        let job = match event {
            Event::Run(started) => started.job.as_deref(),
            _ => None,
        };
        let last = job.and_then(|job| Some((job, *self.jobs.get(job)?)));
        // A copy of a log that was read before another one with its name.
        if let (Some((_, position)), Event::Run(started)) = (last, event) {
            let mut known = self.attempts_of[position].iter();
            if let Some(attempt) = known.position(|known| known.setup == *started) {
                return (position, attempt);
            }
        }
        let unfinished =
            last.filter(|&(job, position)| is_unfinished(&self.attempts_of[position], job));
        let unfinished = unfinished.map(|(_, position)| position);
        let position = unfinished.unwrap_or_else(|| {
            self.attempts_of.push(Vec::new());
            self.attempts_of.len() - 1
        });
        let attempts = &mut self.attempts_of[position];
        attempts.push(Attempt::new(run, &self.log));
        (position, attempts.len() - 1)
    }

    /// Returns all attempts with the positions of their runs.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (usize, &Attempt)> {
        let runs = self.attempts_of.iter().enumerate();
        runs.flat_map(|(position, attempts)| {
            attempts.iter().map(move |attempt| (position, attempt))
        })
    }

    /// Returns the runs, in the order of their first events.
    pub fn finish(self) -> Vec<RunSummary> {
        let runs = self.attempts_of.iter();
        let runs = runs.map(|attempts| RunSummary::new(attempts, self.peak_tflops));
        let mut runs: Vec<RunSummary> = runs.collect();
        number(&mut runs);
        runs
    }
}

/// Whether a run of a job is not done, so that it may be resumed.
fn is_unfinished(attempts: &[Attempt], job: &str) -> bool {
    attempts.last().is_some_and(|last| {
        let outcome = last.done.as_ref().map(|done| done.outcome);
        outcome != Some(Outcome::Done) && last.setup.job.as_deref() == Some(job)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{self, summaries};
    use plmkit_logs::event::Totals;

    fn started(run: &str, job: &str, saved: Option<u64>, tokens: u64) -> Event {
        tests::started(|started| {
            (started.batches_saved, started.tokens_total) = (saved, Some(tokens));
            run.clone_into(&mut started.run);
            started.job = Some(job.to_owned());
            started.time = "2026-01-31T12:00:00Z".parse().ok();
            started.device = Some("cpu".to_owned());
            (started.flops_per_token, started.flops_per_pair) = (Some(7), Some(2));
        })
    }

    fn batch(run: &str, number: u64, elapsed_s: f64) -> Event {
        tests::batch(number, |batch| {
            run.clone_into(&mut batch.run);
            (batch.sequences, batch.tokens, batch.residues) = (1, 10, 8);
            (batch.pairs, batch.elapsed_s) = (Some(100), Some(elapsed_s));
        })
    }

    fn done(run: &str, elapsed_s: f64) -> Event {
        tests::done(|done| {
            run.clone_into(&mut done.run);
            done.elapsed_s = elapsed_s;
        })
    }

    #[test]
    fn a_run_without_batches_has_rates_of_zero_and_one_without_time_has_none() {
        let run = &summaries([done("r", 3.0)])[0];
        let figures = (run.throughput.tokens_per_s, run.outcome);
        assert_eq!(figures, (Some(0.0), Some(Outcome::Done)));
        assert!(run.notes.is_empty());
        for without_time in [done("r", 0.0), started("r", "job", None, 9)] {
            assert_eq!(summaries([without_time])[0].throughput.tokens_per_s, None);
        }
    }

    /// Killed after 4 s, with batch 1 not saved; started again, for the same job or another, and done after 3 s more.
    fn resumed(second_job: &str) -> Vec<Event> {
        vec![
            started("r1", "job", None, 30),
            batch("r1", 0, 2.0),
            batch("r1", 1, 4.0),
            started("r2", second_job, Some(1), 20),
            batch("r2", 1, 1.0),
            batch("r2", 2, 2.5),
            done("r2", 3.0),
        ]
    }

    #[test]
    fn a_resumed_run_took_the_time_of_both_attempts() {
        let runs = summaries(resumed("job"));
        assert_eq!(runs.len(), 1);
        let run = &runs[0];
        assert_eq!(
            (run.setup.run.as_str(), run.setup.job.as_deref()),
            ("r2", Some("job"))
        );
        // All that was computed, one batch twice.
        assert_eq!(
            (run.attempts, run.total.batches, run.total.tokens),
            (2, 4, 40)
        );
        assert_eq!((run.lost_batches, run.lost_tokens), (1, Some(10)));
        let rate = run.throughput.tokens_per_s;
        assert_eq!((run.elapsed_s, rate), (Some(7.0), Some(40.0 / 7.0)));
        let (flops, outcome) = (Some(280.0 + 800.0), Some(Outcome::Done));
        assert_eq!((run.efficiency.flops, run.outcome), (flops, outcome));
        let notes = [
            "it was interrupted and went on: figures are sums over 2 attempts, without the time between them",
            "computed again after the interruption: 1 batch with 10 tokens; a shorter checkpoint interval loses less",
        ];
        assert_eq!(run.notes, notes);
    }

    #[test]
    fn other_work_and_a_repetition_of_finished_work_are_other_runs() {
        let again = [started("r3", "job", None, 30), done("r3", 9.0)];
        let runs = |second_job| summaries(resumed(second_job).into_iter().chain(again.clone()));
        let names = |runs: &[RunSummary]| {
            let names = runs.iter().map(|run| run.setup.run.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&runs("job")), ["r2", "r3"]);
        let other = runs("other");
        assert_eq!(names(&other), ["r3", "r2"]);
        assert_eq!((other[1].total.tokens, other[1].elapsed_s), (20, Some(3.0)));
    }

    #[test]
    fn events_that_are_read_twice_count_once() {
        let once = summaries(resumed("job"));
        assert_eq!(summaries([resumed("job"), resumed("job")].concat()), once);
    }

    #[test]
    fn a_name_in_another_log_is_the_same_run_if_the_log_is_a_copy() {
        let figures = |logs: &[&[Event]]| {
            let mut runs = Runs::default();
            for log in logs {
                log.iter().for_each(|event| runs.add(event));
            }
            let runs = runs.finish().into_iter();
            runs.map(|run| run.total.batches).collect::<Vec<_>>()
        };
        let one = [
            started("r", "one", None, 9),
            batch("r", 0, 1.0),
            batch("r", 1, 2.0),
        ];
        let other = [started("r", "two", None, 9), batch("r", 0, 1.0)];
        assert_eq!(figures(&[&one, &other]), [2, 1]);
        assert_eq!(figures(&[&one, &other, &one]), [2, 1]);
    }

    #[test]
    fn operations_are_unknown_if_a_part_of_them_is() {
        let flops = |per_pair, pairs| {
            let started = tests::started(|run| {
                (run.flops_per_token, run.flops_per_pair) = (Some(7), per_pair);
            });
            let batch = tests::batch(0, |batch| (batch.tokens, batch.pairs) = (10, pairs));
            summaries([started, batch])[0].efficiency.flops
        };
        assert_eq!(flops(Some(2), Some(60)), Some(70.0 + 120.0));
        assert_eq!((flops(None, Some(60)), flops(Some(2), None)), (None, None));
    }

    #[test]
    fn saved_batches_and_rejected_sequences_are_noted() {
        let started = tests::started(|run| run.batches_saved = Some(3));
        let batch = tests::batch(0, |batch| (batch.tokens, batch.rejected) = (10, 2));
        let run = &summaries([started, batch, done("r", 3.0)])[0];
        assert_eq!((run.setup.batches_saved, run.total.rejected), (Some(3), 2));
        assert_eq!(run.notes, ["3 batches taken over from an earlier run"]);
    }

    #[test]
    fn the_last_totals_are_those_of_the_attempt_whatever_events_are_missing() {
        let total = |batches| Totals {
            batches,
            tokens: 10 * batches,
            ..Totals::default()
        };
        let batch = |number, elapsed_s| {
            tests::batch(number, |batch| {
                (batch.tokens, batch.elapsed_s) = (10, Some(elapsed_s));
                batch.total = Some(total(number + 1));
            })
        };
        let end = |batches| {
            tests::done(|done| (done.elapsed_s, done.total) = (9.0, Some(total(batches))))
        };
        let tokens = |events: &[Event]| summaries(events.iter().cloned())[0].total.tokens;
        assert_eq!(tokens(&[batch(0, 1.0), batch(4, 5.0)]), 50);
        // A batch that was read before.
        assert_eq!(tokens(&[batch(4, 5.0), batch(0, 1.0)]), 50);
        assert_eq!(tokens(&[batch(0, 1.0), end(7)]), 70);
    }
}
