//! Worker processes. Each has its own model and gets the next batch when it is free.
//!
//! The run hands out batches and puts the results in order, so the output equals that of a run in one process. A lost worker is
//! replaced, and its batches are computed again. A batch with which several workers are lost is given up; other batches are not
//! affected.
//!
//! ```text
//! batches ▶ schedule ──▶ worker 0, 1, … ──▶ schedule ──▶ results, in order
//!               ▲                │ lost
//!               └────────────────┘
//! ```

mod dispatch;
mod message;
mod process;
mod schedule;
mod serve;
mod slow_batches;

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use plmkit_contract::{Exit, Stop, path_text};
use plmkit_esm2::{Buffers, EsmError, WorkerGpu};

use crate::batch::BatchResult;
use crate::inputs::RunInputs;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::{EngineError, RunConfig};
use message::{Answer, Load, Request};
use process::{Message, Process};
use schedule::MAX_LOSSES;

pub use serve::serve;

/// Time between two checks of the stop flag while no message comes.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time without a lost worker before suspect batches are tried again.
const CALM: Duration = Duration::from_secs(1);
/// Batches that may be given up in a row. If more fail, the batches are hardly the reason.
const MAX_GIVEN_UP: usize = 10;

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
    /// The model of the first worker that was ready.
    info: Option<ModelInfo>,
    /// The number of processes started.
    starts: u64,
    /// When the last worker was lost.
    lost_at: Option<Instant>,
    /// Batches given up since one was computed.
    given_up: usize,
}

/// The place of a worker and its replacements.
struct Slot {
    /// `CUDA_VISIBLE_DEVICES` of the worker, if it differs from that of the run.
    visible: Option<String>,
    load: Load,
    /// `None` if no further process can be started.
    process: Option<Process>,
    /// Whether the process has loaded the model.
    ready: bool,
    /// Processes in a row that were lost before they were ready.
    failed: usize,
}

/// The meaning of a message for the run.
enum WorkerEvent {
    /// int8 was compared with f32.
    Parity(Parity),
    /// This worker has computed its next batch.
    Computed(usize, Box<BatchResult>),
    /// This worker was lost, and is replaced if possible.
    Lost(usize),
    /// The run need not react.
    Other,
}

impl<'a> WorkerPool<'a> {
    /// Starts a worker for each of `devices`, and waits until the first one is ready.
    pub(crate) fn start(
        config: &'a RunConfig,
        devices: Vec<WorkerGpu>,
        inputs: &RunInputs,
        stop: &'a Stop,
    ) -> Result<(Self, ModelInfo), EngineError> {
        let (messages_in, messages) = unbounded();
        let count = devices.len();
        let slots = devices.into_iter().enumerate().map(|(worker, own)| Slot {
            visible: own.visible,
            load: Load {
                device: own.device,
                threads: share(config.threads.get(), worker, count),
                stitched: inputs.stitched(),
                labels: inputs.labels,
                largest_batch: inputs.largest_batch(),
                logs: worker == 0,
            },
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
            starts: 0,
            lost_at: None,
            given_up: 0,
        };
        for worker in 0..count {
            pool.start_process(worker)?;
        }
        loop {
            pool.wait()?;
            if let Some(info) = pool.info.clone() {
                return Ok((pool, info));
            }
        }
    }

    /// Starts a process for a worker.
    fn start_process(&mut self, worker: usize) -> Result<(), EngineError> {
        let slot = &mut self.slots[worker];
        let process = Process::start(
            self.starts,
            &self.config.worker_arguments,
            slot.visible.as_deref(),
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
    fn wait(&mut self) -> Result<WorkerEvent, EngineError> {
        loop {
            if self.stop.requested() {
                return Err(EsmError::Stopped.into());
            }
            match self.messages.recv_timeout(POLL_INTERVAL) {
                Ok(message) => return self.handle_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the pool has a sender"),
            }
        }
    }

    fn handle_message(&mut self, message: Message) -> Result<WorkerEvent, EngineError> {
        let sent = |slot: &Slot| {
            let process = slot.process.as_ref();
            process.is_some_and(|process| process.number == message.process)
        };
        let Some(worker) = self.slots.iter().position(sent) else {
            // The process has been replaced.
            return Ok(WorkerEvent::Other);
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
                Ok(WorkerEvent::Other)
            }
            Some((Answer::Parity(parity), _)) => Ok(WorkerEvent::Parity(parity)),
            Some((Answer::Batch(mut result), Some(rows))) => {
                self.given_up = 0;
                result.rows = rows;
                if let Some(stats) = &mut result.stats {
                    stats.worker = Some(worker as u64);
                }
                Ok(WorkerEvent::Computed(worker, Box::new(result)))
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

    /// Replaces a lost worker, unless its replacements failed too often. Fails if no worker is left.
    fn replace_lost(
        &mut self,
        worker: usize,
        exit: Exit,
        why: &str,
    ) -> Result<WorkerEvent, EngineError> {
        let slot = &mut self.slots[worker];
        slot.process = None;
        self.lost_at = Some(Instant::now());
        if !slot.ready {
            slot.failed += 1;
        }
        slot.ready = false;
        let message = format!("worker {worker} is lost: {why}");
        if slot.failed < MAX_LOSSES && self.start_process(worker).is_ok() {
            tracing::warn!("{message}; another takes its place");
        } else if self.slots.iter().all(|slot| slot.process.is_none()) {
            return Err(EngineError::Worker { exit, message });
        } else {
            tracing::warn!("{message}; the run goes on without it");
        }
        Ok(WorkerEvent::Lost(worker))
    }

    /// Counts batches that were given up, and fails the run if there are too many.
    fn count_given_up(&mut self, batches: usize) -> Result<(), EngineError> {
        self.given_up += batches;
        // An event that takes all workers at once may cost each of them its batch.
        let most = MAX_GIVEN_UP.max(self.slots.len());
        if self.given_up <= most {
            return Ok(());
        }
        Err(EngineError::Worker {
            exit: Exit::Transient,
            message: format!(
                "{} batches were given up one after the other, and none was computed; fewer workers or smaller batches need less memory",
                self.given_up
            ),
        })
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
