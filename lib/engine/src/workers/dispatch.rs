//! The batches of a run on their way through its workers.

use std::collections::HashMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, never, select};
use plmkit_contract::{EmbeddingLayout, Reason, path_text};

use super::message::{BatchPlace, Request};
use super::schedule::{IN_HAND, Schedule, TRIES};
use super::slow_batches::SlowBatches;
use super::{CALM, POLL, WorkerEvent, WorkerPool};
use crate::EngineError;
use crate::backend::Backend;
use crate::batch::{Batch, BatchResult, BatchStats, QueuedBatch};
use crate::parity::Parity;
use crate::sample::Sample;

/// Batches that one worker computes one after the other: no protein has windows in these and in others.
type Group = Vec<Batch>;

/// The batches that have come and whose results have not left.
struct Dispatch {
    schedule: Schedule<Group, Vec<BatchResult>>,
    /// Batches that have come of a group whose end has not.
    coming: Group,
    /// The results that have come of groups that are not complete, by number.
    results: HashMap<u64, Vec<BatchResult>>,
    /// The groups of batches that were handed out, by the positions of the batches.
    group_of: HashMap<u64, u64>,
    slow: SlowBatches,
}

impl Backend for WorkerPool<'_> {
    fn workers(&self) -> Option<u64> {
        Some(self.slots.len() as u64)
    }

    fn measure(&mut self, sample: Sample) -> Result<Parity, EngineError> {
        self.measure_parity(sample)
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &Receiver<Result<QueuedBatch, EngineError>>,
        deliver: &mut dyn FnMut(Batch, BatchResult) -> bool,
    ) -> Result<(), EngineError> {
        let window = self.slots.len() * IN_HAND + self.config.prefetch;
        let mut dispatch = Dispatch {
            schedule: Schedule::new(window),
            coming: Vec::new(),
            results: HashMap::new(),
            group_of: HashMap::new(),
            slow: SlowBatches::new(self.slots.len(), Instant::now()),
        };
        let (messages, closed) = (self.messages.clone(), never());
        let mut ended = false;
        while !self.stop.requested() {
            if ended && dispatch.schedule.is_empty() {
                break;
            }
            self.hand_out(&mut dispatch)?;
            let wanted = if !ended && dispatch.schedule.has_room() {
                batches
            } else {
                &closed
            };
            select! {
                recv(wanted) -> queued => match queued {
                    Ok(queued) => dispatch.add(queued?),
                    Err(_) => ended = true,
                },
                recv(messages) -> message => match self.handle_message(message.expect("the pool has a sender"))? {
                    WorkerEvent::Computed(worker, index, result) => dispatch.add_result(worker, index, *result),
                    WorkerEvent::Lost(worker) => {
                        let given_up = dispatch.retry_or_give_up(worker, layout);
                        self.count_given_up(given_up)?;
                    }
                    _ => {}
                },
                // Only now it is known that no answer lies here.
                default(POLL) => self.warn_of_slow_batches(&mut dispatch),
            }
            while let Some((group, results)) = dispatch.pop_complete() {
                for (batch, result) in group.into_iter().zip(results) {
                    if !deliver(batch, result) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

impl WorkerPool<'_> {
    /// Hands batches out to every worker that is free.
    fn hand_out(&self, dispatch: &mut Dispatch) -> Result<(), EngineError> {
        let there: Vec<usize> = self
            .slots
            .iter()
            .filter_map(|slot| Some(slot.process.as_ref()?.id.worker))
            .collect();
        let calm = self.lost_at.is_none_or(|lost| lost.elapsed() >= CALM);
        let ready = self.slots.iter().filter(|slot| slot.ready);
        for process in ready.filter_map(|slot| slot.process.as_ref()) {
            let worker = process.id.worker;
            if !dispatch.schedule.is_busy(worker) {
                dispatch.slow.begin(worker, Instant::now());
            }
            while let Some((number, group)) = dispatch.schedule.hand_out(worker, &there, calm) {
                for batch in group {
                    let request = Request::Batch(BatchPlace::new(batch));
                    process.send(&request, Some(batch.packed.record_batch()))?;
                    dispatch.group_of.insert(batch.index, number);
                }
            }
        }
        Ok(())
    }

    /// Names workers that were stopped, or whose device hangs: they are not lost, and hold up the run without a message.
    fn warn_of_slow_batches(&self, dispatch: &mut Dispatch) {
        let now = Instant::now();
        for process in self.slots.iter().filter_map(|slot| slot.process.as_ref()) {
            let worker = process.id.worker;
            if dispatch.schedule.is_busy(worker)
                && let Some(taken) = dispatch.slow.overdue(worker, now)
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

impl Dispatch {
    /// Adds the next batch.
    fn add(&mut self, QueuedBatch { batch, saved }: QueuedBatch) {
        if let Some(saved) = saved {
            // A part begins where no protein is unfinished.
            self.schedule.add_done(vec![batch], vec![saved]);
            return;
        }
        let ends_whole = batch.ends_whole;
        self.coming.push(batch);
        if ends_whole {
            self.schedule.add(std::mem::take(&mut self.coming));
        }
    }

    /// Adds the result of a batch, the one at the position `index`.
    fn add_result(&mut self, worker: usize, index: u64, result: BatchResult) {
        self.slow.finish(worker, Instant::now());
        let Some(&number) = self.group_of.get(&index) else {
            return;
        };
        let results = self.results.entry(number).or_default();
        results.push(result);
        if self.schedule.group(number).map(Vec::len) == Some(results.len()) {
            let results = self.results.remove(&number).unwrap_or_default();
            self.schedule.complete(number, results);
        }
    }

    /// A worker is lost. Its batches are computed again, or given up; returns how many were.
    fn retry_or_give_up(&mut self, worker: usize, layout: &EmbeddingLayout) -> usize {
        let mut given_up = 0;
        for (number, lost) in self.schedule.take_back(worker) {
            self.results.remove(&number);
            let Some(group) = self.schedule.group(number).filter(|_| lost >= TRIES) else {
                continue;
            };
            for batch in group {
                tracing::warn!(
                    "{}: record batch {}: given up, since {lost} workers were lost with it",
                    path_text(&batch.path),
                    batch.index_in_file
                );
            }
            given_up += group.len();
            let results = group.iter().map(|batch| BatchResult {
                rows: RecordBatch::new_empty(layout.schema()),
                rejected: batch
                    .output_rows()
                    .map(|row| (row, Reason::WorkerLost))
                    .collect(),
                stats: Some(BatchStats::default()),
            });
            let results = results.collect();
            self.schedule.complete(number, results);
        }
        given_up
    }

    /// The next group that leaves, if it is complete.
    fn pop_complete(&mut self) -> Option<(Group, Vec<BatchResult>)> {
        let (group, results) = self.schedule.pop_complete()?;
        for batch in &group {
            self.group_of.remove(&batch.index);
        }
        Some((group, results))
    }
}
