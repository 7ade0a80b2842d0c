//! The packs of a run on their way through its workers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, never, select};
use plmkit_contract::{EmbeddingLayout, Reason, path_text};

use super::message::{Place, Request, Results as Answered};
use super::patience::Patience;
use super::schedule::{IN_HAND, Schedule, TRIES};
use super::{CALM, POLL, Pool, Told};
use crate::EngineError;
use crate::journal::Timing;
use crate::output::Laid;
use crate::plan::Job;
use crate::reader::Item;
use crate::run::Observer;
use crate::writer::{Finished, Results};

/// Packs that one worker computes one after the other: no protein has windows in these and in others.
type Unit = Vec<Job>;

/// What is underway.
struct Work {
    schedule: Schedule<Unit, Vec<Results>>,
    /// Packs that have come of a unit whose end has not.
    coming: Unit,
    /// The results that have come of units that are not through, by number.
    results: HashMap<u64, Vec<Results>>,
    /// The units of packs that were handed out, by the positions of the packs.
    unit_of: HashMap<u64, u64>,
    patience: Patience,
}

impl Pool<'_> {
    /// Has pack after pack computed until there are no more, a stop is asked for, or nobody takes the results. They come in
    /// the order of the packs.
    pub(crate) fn run(
        &mut self,
        layout: &EmbeddingLayout,
        packs: &Receiver<Result<Item, EngineError>>,
        results: &Sender<Finished>,
        observer: &mut dyn Observer,
    ) -> Result<(), EngineError> {
        let window = self.slots.len() * IN_HAND + self.config.prefetch;
        let mut work = Work::new(window, self.slots.len());
        let (events, closed) = (self.events.clone(), never());
        let mut ended = false;
        while !self.stop.requested() {
            if ended && work.is_empty() {
                break;
            }
            self.hand_out(&mut work)?;
            let wanted = if !ended && work.schedule.has_room() {
                packs
            } else {
                &closed
            };
            select! {
                recv(wanted) -> item => match item {
                    Ok(item) => work.add(item?),
                    Err(_) => ended = true,
                },
                recv(events) -> event => match self.hear(event.expect("the pool has a sender"))? {
                    Told::Pack(worker, answered, rows) => work.computed(worker, *answered, rows),
                    Told::Lost(worker) => self.give_up(work.lost(worker, layout))?,
                    _ => {}
                },
                // Only now it is known that no answer lies here.
                default(POLL) => self.say_who_takes_long(&mut work),
            }
            while let Some((unit, computed)) = work.leave() {
                for (job, result) in unit.into_iter().zip(computed) {
                    let tokens = job.pack.tokens().len() as u64;
                    if results.send(Finished { job, result }).is_err() {
                        // The writer ended early and says why.
                        return Ok(());
                    }
                    observer.advanced(tokens);
                }
            }
        }
        Ok(())
    }

    /// Gives everyone who is free something to do.
    fn hand_out(&self, work: &mut Work) -> Result<(), EngineError> {
        let there: Vec<usize> = self
            .slots
            .iter()
            .filter_map(|slot| Some(slot.process.as_ref()?.name.worker))
            .collect();
        let calm = self.lost_at.is_none_or(|lost| lost.elapsed() >= CALM);
        let ready = self.slots.iter().filter(|slot| slot.ready);
        for process in ready.filter_map(|slot| slot.process.as_ref()) {
            let worker = process.name.worker;
            if !work.schedule.is_busy(worker) {
                work.patience.begins(worker, Instant::now());
            }
            while let Some((number, unit)) = work.schedule.hand_out(worker, &there, calm) {
                for job in unit {
                    let request = Request::Pack(Place::of(job));
                    process
                        .ask(&request, Some(job.pack.record_batch()))
                        .map_err(EngineError::Connection)?;
                    work.unit_of.insert(job.index, number);
                }
            }
        }
        Ok(())
    }

    /// A worker that was stopped, or whose device hangs, is not lost, and holds up the run without a word.
    fn say_who_takes_long(&self, work: &mut Work) {
        let now = Instant::now();
        for process in self.slots.iter().filter_map(|slot| slot.process.as_ref()) {
            let worker = process.name.worker;
            if work.schedule.is_busy(worker)
                && let Some(taken) = work.patience.overdue(worker, now)
            {
                tracing::warn!(
                    "worker {worker}, process {}, has been at one batch for {} s, much longer than at any before; if it is stuck, kill it: another takes its place",
                    process.pid(),
                    taken.as_secs()
                );
            }
        }
    }
}

impl Work {
    fn new(window: usize, workers: usize) -> Self {
        Self {
            schedule: Schedule::new(window),
            coming: Vec::new(),
            results: HashMap::new(),
            unit_of: HashMap::new(),
            patience: Patience::new(workers, Instant::now()),
        }
    }

    fn is_empty(&self) -> bool {
        self.schedule.is_empty()
    }

    /// The next pack comes.
    fn add(&mut self, Item { job, saved }: Item) {
        if let Some(saved) = saved {
            // A part begins where no protein is unfinished.
            self.schedule
                .add_done(vec![job], vec![Results::Saved(saved)]);
            return;
        }
        let ends = job.ends_whole;
        self.coming.push(job);
        if ends {
            self.schedule.add(std::mem::take(&mut self.coming));
        }
    }

    /// A worker has computed a pack.
    fn computed(&mut self, worker: usize, answered: Answered, rows: RecordBatch) {
        self.patience.computed(worker, Instant::now());
        let Some(&number) = self.unit_of.get(&answered.index) else {
            return;
        };
        let (laid, timing) = answered.laid(rows, worker);
        let results = self.results.entry(number).or_default();
        results.push(Results::Laid(laid, timing));
        let packs = self.schedule.unit(number).map(Vec::len);
        if packs == Some(results.len()) {
            let results = self.results.remove(&number).unwrap_or_default();
            self.schedule.done(number, results);
        }
    }

    /// A worker is lost. What it had in hand is computed again, or given up; returns how many packs were.
    fn lost(&mut self, worker: usize, layout: &EmbeddingLayout) -> usize {
        let mut given_up = 0;
        for (number, lost) in self.schedule.lost(worker) {
            self.results.remove(&number);
            let Some(unit) = self.schedule.unit(number).filter(|_| lost >= TRIES) else {
                continue;
            };
            for job in unit {
                tracing::warn!(
                    "{}: record batch {}: given up, since {lost} workers were lost with it",
                    path_text(&job.path),
                    job.batch_in_file
                );
            }
            given_up += unit.len();
            let results = unit.iter().map(|job| without_rows(job, layout)).collect();
            self.schedule.done(number, results);
        }
        given_up
    }

    /// The next unit that leaves, if it is through.
    fn leave(&mut self) -> Option<(Unit, Vec<Results>)> {
        let (unit, results) = self.schedule.leave()?;
        for job in &unit {
            self.unit_of.remove(&job.index);
        }
        Some((unit, results))
    }
}

/// The results of a pack that no worker survived.
fn without_rows(job: &Job, layout: &EmbeddingLayout) -> Results {
    let laid = Laid {
        rows: RecordBatch::new_empty(layout.schema()),
        rejected: job
            .output_rows()
            .map(|row| (row, Reason::WorkerLost))
            .collect(),
        oom_splits: 0,
        in_f32: 0,
    };
    let timing = Timing {
        wait: Duration::ZERO,
        compute: Duration::ZERO,
        device: None,
        queue_depth: 0,
        worker: None,
    };
    Results::Laid(laid, timing)
}
