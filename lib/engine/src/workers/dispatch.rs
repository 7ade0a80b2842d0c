//! Dispatching the batches of a run to its workers.

use std::time::Instant;

use arrow::array::RecordBatch;
use crossbeam_channel::{never, select};
use plmkit_contract::{EmbeddingLayout, Reason, path_text};
use plmkit_esm2::WorkerGpu;

use super::message::{BatchPlace, Request};
use super::schedule::{GROUPS_PER_WORKER, MAX_LOSSES, Schedule};
use super::slow_batches::SlowBatches;
use super::{CALM, POLL_INTERVAL, Slot, WorkerEvent, WorkerPool};
use crate::EngineError;
use crate::batch::{Batch, BatchResult, BatchStats, QueuedBatch};
use crate::parity::Parity;
use crate::pipeline::{Backend, BatchQueue, Deliver};
use crate::sample::ParitySample;

/// The batches between the queue and their delivery. No protein has windows in two groups of the schedule.
struct Dispatch {
    schedule: Schedule<Batch, BatchResult>,
    /// The batches of an incomplete group.
    incoming: Vec<Batch>,
    slow: SlowBatches,
}

impl Backend for WorkerPool<'_> {
    fn workers(&self) -> Option<Vec<WorkerGpu>> {
        let gpu = |slot: &Slot| WorkerGpu {
            device: slot.load.device,
            visible: slot.visible.clone(),
        };
        Some(self.slots.iter().map(gpu).collect())
    }

    fn measure_parity(&mut self, sample: ParitySample) -> Result<Parity, EngineError> {
        let request = Request::Measure(sample);
        let mut asked = None;
        loop {
            if asked.is_none() {
                asked = self.slots.iter().position(|slot| slot.ready);
                if let Some(process) = asked.and_then(|worker| self.slots[worker].process.as_ref())
                {
                    process.send(&request, None)?;
                }
            }
            match self.wait()? {
                WorkerEvent::Parity(parity) => return Ok(parity),
                WorkerEvent::Lost(worker) if asked == Some(worker) => asked = None,
                _ => {}
            }
        }
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut Deliver<'_>,
    ) -> Result<(), EngineError> {
        let window = self.slots.len() * GROUPS_PER_WORKER + self.config.prefetch;
        let mut dispatch = Dispatch {
            schedule: Schedule::new(window),
            incoming: Vec::new(),
            slow: SlowBatches::new(self.slots.len(), Instant::now()),
        };
        let (messages, nothing) = (self.messages.clone(), never());
        let mut ended = false;
        while !self.stop.requested() {
            if ended && dispatch.schedule.is_empty() {
                break;
            }
            self.hand_out(&mut dispatch)?;
            let wanted = if !ended && dispatch.schedule.has_room() {
                batches
            } else {
                &nothing
            };
            select! {
                recv(wanted) -> queued => match queued {
                    Ok(queued) => dispatch.add(queued?),
                    Err(_) => ended = true,
                },
                recv(messages) -> message => match self.handle_message(message.expect("the pool has a sender"))? {
                    WorkerEvent::Computed(worker, result) => {
                        dispatch.slow.finish(worker, Instant::now());
                        dispatch.schedule.add_result(worker, *result);
                    }
                    WorkerEvent::Lost(worker) => {
                        let reject = |batch: &Batch| reject_all(batch, layout);
                        let given_up = dispatch.schedule.take_back(worker, reject);
                        self.count_given_up(given_up)?;
                    }
                    _ => {}
                },
                // No answer is waiting here, so a slow worker is slow indeed.
                default(POLL_INTERVAL) => self.warn_of_slow_batches(&mut dispatch),
            }
            while let Some((batches, results)) = dispatch.schedule.pop_complete() {
                for (batch, result) in batches.into_iter().zip(results) {
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
    /// Assigns batches to every worker that may have more.
    fn hand_out(&self, dispatch: &mut Dispatch) -> Result<(), EngineError> {
        let slots = self.slots.iter().enumerate();
        let running = slots.filter_map(|(worker, slot)| slot.process.is_some().then_some(worker));
        let running: Vec<usize> = running.collect();
        let calm = self.lost_at.is_none_or(|lost| lost.elapsed() >= CALM);
        for (worker, slot) in self.slots.iter().enumerate() {
            let Some(process) = slot.process.as_ref().filter(|_| slot.ready) else {
                continue;
            };
            if !dispatch.schedule.is_busy(worker) {
                dispatch.slow.begin(worker, Instant::now());
            }
            while let Some(batches) = dispatch.schedule.hand_out(worker, &running, calm) {
                for batch in batches {
                    let request = Request::Batch(BatchPlace::new(batch));
                    process.send(&request, Some(batch.packed.record_batch()))?;
                }
            }
        }
        Ok(())
    }

    /// Warns of workers that take too long: a stopped process or a hanging device holds up the run without a message.
    fn warn_of_slow_batches(&self, dispatch: &mut Dispatch) {
        let now = Instant::now();
        for (worker, slot) in self.slots.iter().enumerate() {
            if let Some(process) = &slot.process
                && dispatch.schedule.is_busy(worker)
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
            // A part starts at a boundary, so no group is incomplete.
            self.schedule.add(vec![batch], vec![saved]);
            return;
        }
        let at_boundary = batch.at_boundary;
        self.incoming.push(batch);
        if at_boundary {
            let group = std::mem::take(&mut self.incoming);
            self.schedule.add(group, Vec::new());
        }
    }
}

/// Makes the result of a batch that is given up: all rows are rejected.
fn reject_all(batch: &Batch, layout: &EmbeddingLayout) -> BatchResult {
    tracing::warn!(
        "{}: record batch {}: given up, since {MAX_LOSSES} workers were lost with it",
        path_text(&batch.path),
        batch.index_in_file
    );
    let rows = batch.output_rows();
    BatchResult {
        rows: RecordBatch::new_empty(layout.schema()),
        rejected: rows.map(|row| (row, Reason::WorkerLost)).collect(),
        stats: Some(BatchStats::default()),
    }
}
