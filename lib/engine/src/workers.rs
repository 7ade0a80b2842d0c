//! Worker processes: each has a model of its own, and whoever is free gets the next batch.
//!
//! A run hands out batches and puts the results in order, so that its output is the one of a run in one process. A worker
//! that dies is replaced, and what it had in hand is computed again; what no worker survives is given up, and nothing else.
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
use plmkit_contract::{Exit, Stop};
use plmkit_esm2::{Buffers, EsmError, WorkerGpu};

use crate::batch::BatchResult;
use crate::inputs::RunInputs;
use crate::model_info::ModelInfo;
use crate::parity::Parity;
use crate::sample::Sample;
use crate::{EngineError, RunConfig};
use message::{Answer, Load, Request};
use process::{Message, Process, ProcessId};
use schedule::TRIES;

pub use serve::serve;

/// How often the wish to stop is looked at while nothing happens.
const POLL: Duration = Duration::from_millis(100);
/// How long no worker must have been lost before what others were lost with is tried again.
const CALM: Duration = Duration::from_secs(1);
/// Batches that may be given up one after the other without any being computed in between: with more, it is hardly the batches.
const GIVEN_UP: usize = 10;

/// The workers of a run.
pub(crate) struct WorkerPool<'a> {
    config: &'a RunConfig,
    stop: &'a Stop,
    slots: Vec<Slot>,
    /// The messages of all workers, and the end that a new worker gets.
    messages: Receiver<Message>,
    messages_in: Sender<Message>,
    /// Where results lie.
    results: Buffers<u8>,
    /// Of the first worker that was ready.
    info: Option<ModelInfo>,
    /// Processes that were started.
    starts: u64,
    /// When a worker was lost last.
    lost_at: Option<Instant>,
    /// Batches that were given up since one was computed.
    given_up: usize,
}

/// The place of a worker.
struct Slot {
    /// What `CUDA_VISIBLE_DEVICES` is for it, where that is not what it is here.
    visible: Option<String>,
    load: Load,
    /// `None` where none can be started any more.
    process: Option<Process>,
    ready: bool,
    /// Processes that were lost one after the other before they were ready.
    failed: usize,
}

/// What a message of a worker means for the run.
enum WorkerEvent {
    /// A worker is ready for work.
    Ready,
    /// How near int8 came to f32.
    Parity(Parity),
    /// A worker has computed a batch, the one at this position.
    Computed(usize, u64, Box<BatchResult>),
    /// This worker was lost, and is replaced if it can be.
    Lost(usize),
    /// Nothing that matters.
    Nothing,
}

impl<'a> WorkerPool<'a> {
    /// Starts a worker for each of `devices` and waits for the first to be ready.
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
                largest: inputs.largest_batch(),
                speaks: worker == 0,
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
            if let Some(info) = &pool.info {
                let info = info.clone();
                return Ok((pool, info));
            }
        }
    }

    /// Has a worker measure how near the model, which is in int8, comes to f32.
    fn measure_parity(&mut self, sample: Sample) -> Result<Parity, EngineError> {
        let request = Request::Measure(sample);
        let mut asked = None;
        loop {
            if asked.is_none() {
                let ready = self.slots.iter().find(|slot| slot.ready);
                if let Some(process) = ready.and_then(|slot| slot.process.as_ref()) {
                    process.send(&request, None)?;
                    asked = Some(process.id.worker);
                }
            }
            match self.wait()? {
                WorkerEvent::Parity(parity) => return Ok(parity),
                WorkerEvent::Lost(worker) if asked == Some(worker) => asked = None,
                _ => {}
            }
        }
    }

    /// Starts a process for a worker.
    fn start_process(&mut self, worker: usize) -> Result<(), EngineError> {
        let id = ProcessId {
            worker,
            start: self.starts,
        };
        self.starts += 1;
        let slot = &mut self.slots[worker];
        let arguments = &self.config.worker_arguments;
        let visible = slot.visible.as_deref();
        let process = Process::start(
            id,
            arguments,
            visible,
            self.messages_in.clone(),
            self.results.clone(),
        );
        let process = process.map_err(EngineError::Start)?;
        let load = Request::Load(slot.load);
        process.send(&load, None)?;
        // Those that take its place need not say it again.
        slot.load.speaks = false;
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
            match self.messages.recv_timeout(POLL) {
                Ok(message) => return self.handle_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the pool has a sender"),
            }
        }
    }

    fn handle_message(&mut self, message: Message) -> Result<WorkerEvent, EngineError> {
        let worker = message.from.worker;
        let slot = &mut self.slots[worker];
        if slot.process.as_ref().map(|process| process.id) != Some(message.from) {
            // Of a process that is no worker any more.
            return Ok(WorkerEvent::Nothing);
        }
        match message.answer {
            Some((Answer::Ready(info), _)) => {
                slot.ready = true;
                slot.failed = 0;
                match &self.info {
                    Some(first) if !first.agrees_with(&info) => Err(EngineError::Worker {
                        exit: Exit::Data,
                        message: format!(
                            "{}: changed while workers loaded it",
                            plmkit_contract::path_text(&self.config.model)
                        ),
                    }),
                    _ => {
                        self.info = Some(info);
                        Ok(WorkerEvent::Ready)
                    }
                }
            }
            Some((Answer::Parity(parity), _)) => Ok(WorkerEvent::Parity(parity)),
            Some((Answer::Batch { index, mut result }, Some(rows))) => {
                self.given_up = 0;
                result.rows = rows;
                if let Some(stats) = &mut result.stats {
                    stats.worker = Some(worker as u64);
                }
                Ok(WorkerEvent::Computed(worker, index, Box::new(result)))
            }
            // One that takes a place finds what the others had found when they began, or it is no help.
            Some((Answer::Failed { message, .. }, _)) if !slot.ready && self.info.is_some() => {
                self.replace_lost(worker, Exit::Transient, &message)
            }
            Some((Answer::Failed { exit, message }, _)) => {
                match Exit::TABLE.iter().find(|(known, _)| known.code() == exit) {
                    Some(&(exit, _)) if exit != Exit::Transient && exit != Exit::Internal => {
                        Err(EngineError::Worker { exit, message })
                    }
                    known => {
                        let exit = known.map_or(Exit::Internal, |&(exit, _)| exit);
                        self.replace_lost(worker, exit, &message)
                    }
                }
            }
            Some((Answer::Batch { .. }, None)) => {
                self.replace_lost(worker, Exit::Internal, "it sent no rows")
            }
            None => {
                let ending = slot.process.take().map(Process::describe_ending);
                self.replace_lost(worker, Exit::Transient, &ending.unwrap_or_default())
            }
        }
    }

    /// Replaces a worker, unless that was tried too often.
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
        let replaced = slot.failed < TRIES && self.start_process(worker).is_ok();
        if replaced {
            tracing::warn!("{message}; another takes its place");
        } else if self.slots.iter().all(|slot| slot.process.is_none()) {
            return Err(EngineError::Worker { exit, message });
        } else {
            tracing::warn!("{message}; the run goes on without it");
        }
        Ok(WorkerEvent::Lost(worker))
    }

    /// Counts batches that were given up, and fails the run where there are too many.
    fn count_given_up(&mut self, batches: usize) -> Result<(), EngineError> {
        self.given_up += batches;
        // What takes all workers at once may cost each of them its batch.
        let most = GIVEN_UP.max(self.slots.len());
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
        // All at once, and then each is waited for.
        for process in self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.process.as_mut())
        {
            process.kill();
        }
    }
}

/// The threads of one of `count` workers that have `threads` together.
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
            (0..count)
                .map(|i| share(threads, i, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shares(8, 3), [3, 3, 2]);
        assert_eq!(shares(2, 4), [1, 1, 1, 1]);
        assert_eq!(shares(5, 1), [5]);
    }
}
