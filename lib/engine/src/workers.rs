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

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, never, select, unbounded};
use plmkit_contract::{EmbeddingLayout, Exit, Reason, Stop, path_text, plural};
use plmkit_esm2::{Buffers, Esm2, EsmError, ModelInfo, WorkerGpu, set_threads};

use crate::batch::Batch;
use crate::inputs::RunInputs;
use crate::parity::Parity;
use crate::pipeline::{BatchQueue, Compute};
use crate::sample::ParitySample;
use crate::{EngineError, RunConfig};
use message::Message;
use process::Process;
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
    /// The answers of all workers, and the sender for new workers.
    answers: Receiver<(u64, Option<Message>)>,
    answers_in: Sender<(u64, Option<Message>)>,
    /// The most sequences and the most tokens of a batch.
    largest_batch: (usize, usize),
    /// Memory for results.
    results: Buffers<u8>,
    /// The model of the last worker that was ready.
    info: Option<ModelInfo>,
    schedule: Schedule<Batch>,
    /// The batches that may be skipped one after the other.
    may_skip: usize,
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
    /// `None` if no further process can be started.
    process: Option<Process>,
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
        let (answers_in, answers) = unbounded();
        let count = devices.len();
        let slots = devices.into_iter().map(|gpu| Slot {
            gpu,
            process: None,
            failed: 0,
        });
        let mut pool = Self {
            config,
            stop,
            slots: slots.collect(),
            answers,
            answers_in,
            largest_batch: inputs.largest_batch,
            results: Buffers::default(),
            info: None,
            schedule: Schedule::new(count * GROUPS_PER_WORKER + config.prefetch),
            // An event that takes all workers at once may cost each of them its batch. An output without a batch is none.
            may_skip: MAX_SKIPPED
                .max(count)
                .min(inputs.total.batches.saturating_sub(1) as usize),
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
        let count = self.slots.len();
        let slot = &mut self.slots[worker];
        let process = Process::start(
            self.starts,
            &self.config.worker_arguments,
            slot.gpu.visible.as_deref(),
            self.answers_in.clone(),
            self.results.clone(),
        );
        let load = Message::Load {
            device: slot.gpu.device,
            threads: share(self.config.threads, worker, count),
            largest_batch: self.largest_batch,
            // Replacements must not repeat the messages.
            logs: self.starts == 0,
        };
        self.starts += 1;
        let process = process.map_err(EngineError::not_started("worker"))?;
        process.send(&load)?;
        slot.process = Some(process);
        Ok(())
    }

    /// Waits for a message of any worker.
    fn wait(&mut self) -> Result<(), EngineError> {
        loop {
            if self.stop.requested() {
                return Err(EsmError::Stopped.into());
            }
            match self.answers.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => return self.handle(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the pool has a sender"),
            }
        }
    }

    /// Takes the answer of the process of this number; `None` after it has hung up.
    fn handle(&mut self, (number, answer): (u64, Option<Message>)) -> Result<(), EngineError> {
        let slots = self.slots.iter_mut().enumerate();
        let mut running = slots.filter_map(|(worker, slot)| {
            let process = slot.process.as_mut()?;
            Some((worker, process, &mut slot.failed))
        });
        let sent = running.find(|(_, process, _)| process.number == number);
        let Some((worker, process, failed)) = sent else {
            // The process has been replaced.
            return Ok(());
        };
        match answer {
            Some(Message::Ready(info)) => {
                process.ready = true;
                *failed = 0;
                if let Some(first) = &self.info {
                    agree(&self.config.model, first, &info)?;
                }
                self.info = Some(*info);
                Ok(())
            }
            Some(Message::Batch(mut batch)) if batch.rows.is_some() => {
                self.skipped = 0;
                batch.event.worker = Some(worker as u64);
                self.slow.finish(worker, Instant::now());
                self.schedule.add_computed(worker, *batch);
                Ok(())
            }
            Some(Message::Failed { exit, message }) => {
                // Another worker has loaded the model, so a replacement that cannot load it is only lost.
                let lost_in_loading = !process.ready && self.info.is_some();
                match Exit::from_code(exit).unwrap_or(Exit::Internal) {
                    _ if lost_in_loading => self.replace_lost(worker, Exit::Transient, &message),
                    exit @ (Exit::Transient | Exit::Internal) => {
                        self.replace_lost(worker, exit, &message)
                    }
                    exit => Err(EngineError::new(exit, message)),
                }
            }
            Some(_) => self.replace_lost(worker, Exit::Internal, "it sent no rows"),
            None => {
                let (exit, end) = process.describe_end();
                self.replace_lost(worker, exit, &end)
            }
        }
    }

    /// Replaces a lost worker, unless its replacements failed too often, and requeues its batches. Fails if no worker is left, or if
    /// too many batches are skipped.
    fn replace_lost(&mut self, worker: usize, exit: Exit, why: &str) -> Result<(), EngineError> {
        let slot = &mut self.slots[worker];
        let was_ready = slot.process.take().is_some_and(|process| process.ready);
        slot.failed += usize::from(!was_ready);
        self.crashed_at = Some(Instant::now());
        let message = format!("worker {worker} is lost: {why}");
        if slot.failed < MAX_CRASHES && self.start_process(worker).is_ok() {
            tracing::warn!("{message}; another takes its place");
        } else if self.slots.iter().all(|slot| slot.process.is_none()) {
            return Err(EngineError::new(exit, message));
        } else {
            tracing::warn!("{message}; the run goes on without it");
        }
        self.skipped += self.schedule.requeue(worker);
        if self.skipped <= self.may_skip {
            return Ok(());
        }
        let advice = match exit {
            Exit::Transient => "; fewer workers or smaller batches need less memory",
            _ => "",
        };
        let what = format_args!(
            "{message}; {} skipped, and none computed meanwhile{advice}",
            plural(self.skipped, "batch")
        );
        Err(EngineError::new(exit, what))
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
        // Workers compute on GPUs, and int8 is of CPUs: only a test has both, and this process computes too.
        set_threads(self.config.threads);
        let model = Esm2::load(&self.config.model, self.config.compute, self.stop)?;
        Ok(sample.measure(&model, self.stop)?)
    }

    fn run(
        &mut self,
        layout: &EmbeddingLayout,
        batches: &BatchQueue,
        deliver: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<(), EngineError> {
        let (answers, nothing) = (self.answers.clone(), never());
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
                recv(answers) -> answer => self.handle(answer.expect("the pool has a sender"))?,
                // No answer is waiting here, so a slow worker is slow indeed.
                default(POLL_INTERVAL) => self.warn_of_slow_batches(),
            }
            while let Some((computed, mut skipped)) = self.schedule.pop_complete() {
                for batch in &mut skipped {
                    skip(batch, layout);
                }
                for batch in computed.into_iter().chain(skipped) {
                    if !deliver(batch) {
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
    fn add(&mut self, group: &mut Vec<Batch>, batch: Batch) {
        if batch.saved {
            // A part starts at a boundary, so no group is incomplete.
            self.schedule.add(Vec::new(), vec![batch]);
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
        // A worker that never finishes loading must not be waited for.
        let ready = slots.filter_map(|(worker, slot)| {
            let process = slot.process.as_ref().filter(|process| process.ready);
            process.map(|process| (worker, process))
        });
        let (workers, processes): (Vec<usize>, Vec<&Process>) = ready.unzip();
        let crashed_at = self.crashed_at;
        let cooled_down = crashed_at.is_none_or(|crashed| crashed.elapsed() >= COOLDOWN);
        for (&worker, process) in workers.iter().zip(processes) {
            if !self.schedule.is_busy(worker) {
                self.slow.begin(worker, Instant::now());
            }
            while let Some(batches) = self.schedule.assign(worker, &workers, cooled_down) {
                for batch in batches {
                    let mut batch = batch.clone();
                    batch.rows = Some(batch.packed.record_batch().clone());
                    process.send(&Message::Batch(Box::new(batch)))?;
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

/// Checks that two workers loaded the same model in the same type on devices of the same kind.
fn agree(model: &Path, first: &ModelInfo, other: &ModelInfo) -> Result<(), EngineError> {
    let model = path_text(model);
    let how = |info: &ModelInfo| {
        let (device, dtype, kernels) = (info.device_kind(), info.dtype, &info.kernels);
        format!("{device} in {dtype} by the kernels {kernels}")
    };
    let [expected, found] = [first, other].map(how);
    if first.checkpoint != other.checkpoint {
        return Err(EngineError::data(model, "changed while workers loaded it"));
    } else if expected == found {
        return Ok(());
    }
    let what =
        format_args!("{model}: workers compute it differently; expected {expected}, found {found}");
    Err(EngineError::new(Exit::Unavailable, what))
}

/// Rejects all rows of a batch that is skipped.
fn skip(batch: &mut Batch, layout: &EmbeddingLayout) {
    tracing::warn!(
        "{}: skipped after crashing {MAX_CRASHES} workers; its sequences are listed as rejected",
        batch.name
    );
    let rows = batch.output_rows();
    let rejected = rows.map(|row| batch.reject(row, Reason::WorkerLost));
    let rejected = rejected.collect();
    (batch.event.wait_ms, batch.event.compute_ms) = (Some(0.0), Some(0.0));
    batch.event.queue_depth = Some(0);
    batch.finish(RecordBatch::new_empty(layout.schema()), rejected);
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
fn share(threads: NonZeroUsize, worker: usize, count: usize) -> NonZeroUsize {
    let more = usize::from(worker < threads.get() % count);
    NonZeroUsize::new(threads.get() / count + more).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::exit_of;
    use plmkit_esm2::ComputeOptions;

    use super::*;

    #[test]
    fn what_two_workers_do_differently_is_named() {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-data/model-tiny");
        let loaded = Esm2::load(&model, ComputeOptions::default(), &Stop::default());
        let first = loaded.expect("the tiny model").info().clone();
        let mut other = ModelInfo {
            device: format!("{}:1", first.device_kind()),
            ..first.clone()
        };
        agree(&model, &first, &other).expect("another device of the same kind");
        other.kernels = "others".to_owned();
        let error = agree(&model, &first, &other).expect_err("other kernels");
        assert_eq!(exit_of(&error), Exit::Unavailable);
        let found = format!("in {} by the kernels others", first.dtype);
        assert!(error.to_string().ends_with(&found), "{error}");
        other.checkpoint.digest.clear();
        let error = agree(&model, &first, &other).expect_err("another model");
        assert_eq!(exit_of(&error), Exit::Data);
    }

    #[test]
    fn threads_are_shared_and_every_worker_has_one() {
        let shares = |threads, count| {
            let threads = NonZeroUsize::new(threads).expect("threads");
            let workers = 0..count;
            workers
                .map(|i| share(threads, i, count).get())
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(8, 3), [3, 3, 2]);
        assert_eq!(shares(2, 4), [1, 1, 1, 1]);
        assert_eq!(shares(5, 1), [5]);
    }
}
