//! Worker processes. Each has its own model and gets the next batch when it is free.
//!
//! The run assigns batches and puts the results in order, so the output equals that of a run in one process. A lost worker is
//! replaced, and its batches are computed again. A batch that crashes several workers is skipped; other batches are not
//! affected.
//!
//! ```text
//! batches ▶ schedule ──▶ worker 0, 1, … ──▶ schedule ──▶ results, in order
//!               ▲                │ lost
//!               └────────────────┘
//! ```

mod message;
mod process;
mod schedule;
mod serve;
mod slow_batches;

use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, never, select, unbounded};
use plmkit_contract::{EmbeddingLayout, Exit, Reason, Stop, path_text};
use plmkit_esm2::{Buffers, EsmError, ModelInfo, WorkerGpu};

use crate::batch::{Batch, BatchResult, BatchStats};
use crate::inputs::RunInputs;
use crate::parity::Parity;
use crate::pipeline::{BatchQueue, Compute, Deliver};
use crate::sample::ParitySample;
use crate::{EngineError, RunConfig};
use message::{Answer, Load, Request};
use process::{Message, Process};
use schedule::{GROUPS_PER_WORKER, MAX_CRASHES, Schedule};
use slow_batches::SlowBatches;

pub use serve::serve;

/// Time between two checks of the stop flag while no message comes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time without a crashed worker before suspect batches are tried again.
const COOLDOWN: Duration = Duration::from_secs(1);
/// Batches that may be skipped in a row. If more fail, the batches are hardly the reason.
const MAX_SKIPPED: usize = 10;

/// The workers of a run.
pub(crate) struct WorkerPool<'a> {
    config: &'a RunConfig,
    stop: &'a Stop,
    slots: Vec<Slot>,
    /// The messages of all workers, and the sender for new workers.
    messages: Receiver<Message>,
    messages_in: Sender<Message>,
    /// Memory for results.
    results: Buffers<u8>,
    /// The model of the last worker that was ready.
    info: Option<ModelInfo>,
    /// How close int8 is to f32, after a worker has compared them.
    parity: Option<Parity>,
    schedule: Schedule<Batch, BatchResult>,
    slow: SlowBatches,
    /// The number of processes started.
    starts: u64,
    /// When the last worker crashed.
    crashed_at: Option<Instant>,
    /// Batches skipped since one was computed.
    skipped: usize,
}

/// The place of a worker and its replacements.
struct Slot {
    gpu: WorkerGpu,
    load: Load,
    /// `None` if no further process can be started.
    process: Option<Process>,
    /// Whether the process has loaded the model.
    ready: bool,
    /// Processes in a row that were lost before they were ready.
    failed: usize,
}

impl<'a> WorkerPool<'a> {
    /// Starts a worker for each of `devices`, and waits until the first one is ready.
    pub(crate) fn start(
        config: &'a RunConfig,
        devices: Vec<WorkerGpu>,
        inputs: &RunInputs,
        stop: &'a Stop,
    ) -> Result<Self, EngineError> {
        let (messages_in, messages) = unbounded();
        let count = devices.len();
        let slots = devices.into_iter().enumerate().map(|(worker, gpu)| Slot {
            load: Load {
                device: gpu.device,
                threads: share(config.threads.get(), worker, count),
                stitched: inputs.stitched(),
                labels: inputs.labels,
                largest_batch: inputs.largest_batch,
                logs: worker == 0,
            },
            gpu,
            process: None,
            ready: false,
            failed: 0,
        });
        let mut pool = Self {
            config,
            stop,
            slots: slots.collect(),
            messages,
            messages_in,
            results: Buffers::default(),
            info: None,
            parity: None,
            schedule: Schedule::new(count * GROUPS_PER_WORKER + config.prefetch),
            slow: SlowBatches::new(count, Instant::now()),
            starts: 0,
            crashed_at: None,
            skipped: 0,
        };
        for worker in 0..count {
            pool.start_process(worker)?;
        }
        while pool.info.is_none() {
            pool.wait()?;
        }
        Ok(pool)
    }

    /// Starts a process for a worker.
    fn start_process(&mut self, worker: usize) -> Result<(), EngineError> {
        let slot = &mut self.slots[worker];
        let process = Process::start(
            self.starts,
            &self.config.worker_arguments,
            slot.gpu.visible.as_deref(),
            self.messages_in.clone(),
            self.results.clone(),
        );
        self.starts += 1;
        let process = process.map_err(EngineError::Start)?;
        process.send(&Request::Load(slot.load), None)?;
        // Replacements must not repeat the messages.
        slot.load.logs = false;
        slot.ready = false;
        slot.process = Some(process);
        Ok(())
    }

    /// Waits for a message of any worker.
    fn wait(&mut self) -> Result<(), EngineError> {
        loop {
            if self.stop.requested() {
                return Err(EsmError::Stopped.into());
            }
            match self.messages.recv_timeout(POLL_INTERVAL) {
                Ok(message) => return self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the pool has a sender"),
            }
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), EngineError> {
        let sent = |slot: &Slot| {
            let process = slot.process.as_ref();
            process.is_some_and(|process| process.number == message.process)
        };
        let Some(worker) = self.slots.iter().position(sent) else {
            // The process has been replaced.
            return Ok(());
        };
        let slot = &mut self.slots[worker];
        match message.answer {
            Some((Answer::Ready(info), _)) => {
                slot.ready = true;
                slot.failed = 0;
                if let Some(first) = &self.info
                    && !first.agrees_with(&info)
                {
                    let model = path_text(&self.config.model);
                    return Err(EngineError::Worker {
                        exit: Exit::Data,
                        message: format!("{model}: changed while workers loaded it"),
                    });
                }
                self.info = Some(info);
                Ok(())
            }
            Some((Answer::Parity(parity), _)) => {
                self.parity = Some(parity);
                Ok(())
            }
            Some((Answer::Batch(mut result), Some(rows))) => {
                self.skipped = 0;
                result.rows = rows;
                if let Some(stats) = &mut result.stats {
                    stats.worker = Some(worker as u64);
                }
                self.slow.finish(worker, Instant::now());
                self.schedule.add_result(worker, result);
                Ok(())
            }
            Some((Answer::Batch(_), None)) => {
                self.replace_lost(worker, Exit::Internal, "it sent no rows")
            }
            Some((Answer::Failed { exit, message }, _)) => {
                // Another worker has loaded the model, so a replacement that cannot load it is only lost.
                let lost_in_loading = !slot.ready && self.info.is_some();
                match Exit::from_code(exit).unwrap_or(Exit::Internal) {
                    _ if lost_in_loading => self.replace_lost(worker, Exit::Transient, &message),
                    exit @ (Exit::Transient | Exit::Internal) => {
                        self.replace_lost(worker, exit, &message)
                    }
                    exit => Err(EngineError::Worker { exit, message }),
                }
            }
            None => {
                let end = slot.process.take().map(Process::describe_end);
                self.replace_lost(worker, Exit::Transient, &end.unwrap_or_default())
            }
        }
    }

    /// Replaces a lost worker, unless its replacements failed too often, and requeues its batches. Fails if no worker is left, or if
    /// too many batches are skipped.
    fn replace_lost(&mut self, worker: usize, exit: Exit, why: &str) -> Result<(), EngineError> {
        let slot = &mut self.slots[worker];
        slot.process = None;
        self.crashed_at = Some(Instant::now());
        if !slot.ready {
            slot.failed += 1;
        }
        slot.ready = false;
        let message = format!("worker {worker} is lost: {why}");
        if slot.failed < MAX_CRASHES && self.start_process(worker).is_ok() {
            tracing::warn!("{message}; another takes its place");
        } else if self.slots.iter().all(|slot| slot.process.is_none()) {
            return Err(EngineError::Worker { exit, message });
        } else {
            tracing::warn!("{message}; the run goes on without it");
        }
        self.skipped += self.schedule.requeue(worker);
        // An event that takes all workers at once may cost each of them its batch.
        let most = MAX_SKIPPED.max(self.slots.len());
        if self.skipped <= most {
            return Ok(());
        }
        Err(EngineError::Worker {
            exit: Exit::Transient,
            message: format!(
                "{} batches were skipped one after the other, and none was computed; fewer workers or smaller batches need less memory",
                self.skipped
            ),
        })
    }
}

impl Compute for WorkerPool<'_> {
    fn info(&self) -> &ModelInfo {
        self.info.as_ref().expect("a worker is ready")
    }

    fn workers(&self) -> Option<Vec<WorkerGpu>> {
        Some(self.slots.iter().map(|slot| slot.gpu.clone()).collect())
    }

    fn measure_parity(&mut self, sample: ParitySample) -> Result<Parity, EngineError> {
        let request = Request::Measure(sample);
        let mut asked = None;
        loop {
            // The process that was asked may have been replaced.
            let ready = self.slots.iter().filter(|slot| slot.ready);
            let ready: Vec<&Process> = ready.filter_map(|slot| slot.process.as_ref()).collect();
            if !ready.iter().any(|process| Some(process.number) == asked)
                && let Some(process) = ready.first()
            {
                process.send(&request, None)?;
                asked = Some(process.number);
            }
            self.wait()?;
            if let Some(parity) = self.parity.take() {
                return Ok(parity);
            }
        }
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut Deliver<'_>,
    ) -> Result<(), EngineError> {
        let (messages, nothing) = (self.messages.clone(), never());
        // The batches of an incomplete group. No protein has windows in two groups of the schedule.
        let mut group = Vec::new();
        let mut ended = false;
        while !(self.stop.requested() || ended && self.schedule.is_empty()) {
            self.assign()?;
            let wanted = if !ended && self.schedule.has_room() {
                batches
            } else {
                &nothing
            };
            select! {
                recv(wanted) -> batch => match batch {
                    Ok(batch) => self.add(&mut group, batch?),
                    Err(_) => ended = true,
                },
                recv(messages) -> message => self.handle(message.expect("the pool has a sender"))?,
                // No answer is waiting here, so a slow worker is slow indeed.
                default(POLL_INTERVAL) => self.warn_of_slow_batches(),
            }
            while let Some((batches, results)) = self.schedule.pop_complete() {
                let skip = || batches.iter().map(|batch| skip(batch, layout)).collect();
                let results = results.unwrap_or_else(skip);
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
    /// Adds the next batch to the schedule, or to the incomplete `group`.
    fn add(&mut self, group: &mut Vec<Batch>, mut batch: Batch) {
        if let Some(saved) = batch.saved.take() {
            // A part starts at a boundary, so no group is incomplete.
            self.schedule.add(vec![batch], vec![saved]);
            return;
        }
        let at_boundary = batch.at_boundary;
        group.push(batch);
        if at_boundary {
            self.schedule.add(std::mem::take(group), Vec::new());
        }
    }

    /// Assigns batches to every worker that may have more.
    fn assign(&mut self) -> Result<(), EngineError> {
        let slots = self.slots.iter().enumerate();
        let running = slots.filter_map(|(worker, slot)| slot.process.is_some().then_some(worker));
        let running: Vec<usize> = running.collect();
        let crashed_at = self.crashed_at;
        let cooled_down = crashed_at.is_none_or(|crashed| crashed.elapsed() >= COOLDOWN);
        for (worker, slot) in self.slots.iter().enumerate() {
            let Some(process) = slot.process.as_ref().filter(|_| slot.ready) else {
                continue;
            };
            if !self.schedule.is_busy(worker) {
                self.slow.begin(worker, Instant::now());
            }
            while let Some(batches) = self.schedule.assign(worker, &running, cooled_down) {
                for batch in batches {
                    let request = Request::Batch(Box::new(batch.clone()));
                    process.send(&request, Some(batch.packed.record_batch()))?;
                }
            }
        }
        Ok(())
    }

    /// Warns of workers that take too long: a stopped process or a hanging device holds up the run without a message.
    fn warn_of_slow_batches(&mut self) {
        let now = Instant::now();
        for (worker, slot) in self.slots.iter().enumerate() {
            if let Some(process) = &slot.process
                && self.schedule.is_busy(worker)
                && let Some(taken) = self.slow.overdue(worker, now)
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

/// Makes the result of a batch that is skipped: all rows are rejected.
fn skip(batch: &Batch, layout: &EmbeddingLayout) -> BatchResult {
    tracing::warn!(
        "{}: skipped after crashing {MAX_CRASHES} workers; its sequences are listed as rejected",
        batch.name
    );
    let rows = batch.output_rows();
    BatchResult {
        rows: RecordBatch::new_empty(layout.schema()),
        rejected: rows
            .map(|row| batch.reject(row, Reason::WorkerLost))
            .collect(),
        stats: Some(BatchStats::default()),
    }
}

impl Drop for WorkerPool<'_> {
    fn drop(&mut self) {
        // Kill all of them before waiting for each.
        let processes = self.slots.iter_mut();
        processes
            .filter_map(|slot| slot.process.as_mut())
            .for_each(Process::kill);
    }
}

/// Returns the threads of one of `count` workers that have `threads` together, at least one.
fn share(threads: usize, worker: usize, count: usize) -> usize {
    let more = usize::from(worker < threads % count);
    (threads / count + more).max(1)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn threads_are_shared_and_every_worker_has_one() {
        let shares = |threads, count| {
            let workers = 0..count;
            workers
                .map(|i| share(threads, i, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(8, 3), [3, 3, 2]);
        assert_eq!(shares(2, 4), [1, 1, 1, 1]);
        assert_eq!(shares(5, 1), [5]);
    }
}
