//! Worker processes: each has a model of its own, and whoever is free gets the next pack.
//!
//! A run hands out packs and puts the results in order, so that its output is the one of a run in one process. A worker
//! that dies is replaced, and what it had in hand is computed again; what no worker survives is given up, and nothing else.
//!
//! ```text
//! packs ──▶ schedule ──▶ worker 0, 1, … ──▶ schedule ──▶ results, in order
//!               ▲                │ lost
//!               └────────────────┘
//! ```

mod message;
mod patience;
mod process;
mod schedule;
mod serve;
mod work;

use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use plmkit_contract::{Exit, Stop};
use plmkit_esm2::{Buffers, EsmError, OwnGpu};

use crate::facts::Facts;
use crate::parity::{Parity, Sample};
use crate::plan::Plan;
use crate::{Config, EngineError};
use message::{Answer, Load, Request, Results};
use process::{Event, Name, Process};
use schedule::TRIES;

pub use serve::serve;

/// How often the wish to stop is looked at while nothing happens.
const POLL: Duration = Duration::from_millis(100);
/// How long no worker must have been lost before what others were lost with is tried again.
const CALM: Duration = Duration::from_secs(1);
/// Packs that may be given up one after the other without any being computed in between: with more, it is hardly the packs.
const GIVEN_UP: usize = 10;

/// The workers of a run.
pub(crate) struct Pool<'a> {
    config: &'a Config,
    stop: &'a Stop,
    slots: Vec<Slot>,
    /// What all workers say, and where they say it.
    events: Receiver<Event>,
    mouth: Sender<Event>,
    /// Where results lie.
    results: Buffers<u8>,
    /// Of the first worker that was ready.
    facts: Option<Facts>,
    /// Processes that were started.
    starts: u64,
    /// When a worker was lost last.
    lost_at: Option<Instant>,
    /// Packs that were given up since one was computed.
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

/// What comes of an event.
enum Told {
    /// A worker is ready for work.
    Ready,
    /// How near int8 came to f32.
    Parity(Parity),
    /// A pack is computed.
    Pack(usize, Box<Results>, RecordBatch),
    /// This worker was lost, and is replaced if it can be.
    Lost(usize),
    /// Nothing that matters.
    Nothing,
}

impl<'a> Pool<'a> {
    /// Starts a worker for each of `devices` and waits for the first to be ready.
    pub(crate) fn start(
        config: &'a Config,
        devices: Vec<OwnGpu>,
        plan: &Plan,
        stop: &'a Stop,
    ) -> Result<(Self, Facts), EngineError> {
        let (mouth, events) = unbounded();
        let count = devices.len();
        let slots = devices.into_iter().enumerate().map(|(worker, own)| Slot {
            visible: own.visible,
            load: Load {
                device: own.device,
                threads: share(config.threads.get(), worker, count),
                stitched: plan.stitched(),
                labels: plan.labels,
                largest: plan.largest(),
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
            events,
            mouth,
            results: Buffers::default(),
            facts: None,
            starts: 0,
            lost_at: None,
            given_up: 0,
        };
        for worker in 0..count {
            pool.begin(worker)?;
        }
        loop {
            pool.wait()?;
            if let Some(facts) = &pool.facts {
                let facts = facts.clone();
                return Ok((pool, facts));
            }
        }
    }

    /// How many workers there are to be.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// How near the model, which is in int8, comes to f32.
    pub(crate) fn measure(&mut self, sample: Sample) -> Result<Parity, EngineError> {
        let request = Request::Measure(sample);
        let mut asked = None;
        loop {
            if asked.is_none() {
                let ready = |slot: &&Slot| slot.ready;
                let process = self
                    .slots
                    .iter()
                    .find(ready)
                    .and_then(|slot| slot.process.as_ref());
                if let Some(process) = process {
                    process
                        .ask(&request, None)
                        .map_err(EngineError::Connection)?;
                    asked = Some(process.name.worker);
                }
            }
            match self.wait()? {
                Told::Parity(parity) => return Ok(parity),
                Told::Lost(worker) if asked == Some(worker) => asked = None,
                _ => {}
            }
        }
    }

    /// Starts a process for a worker.
    fn begin(&mut self, worker: usize) -> Result<(), EngineError> {
        let name = Name {
            worker,
            start: self.starts,
        };
        self.starts += 1;
        let slot = &mut self.slots[worker];
        let arguments = &self.config.worker_arguments;
        let visible = slot.visible.as_deref();
        let process = Process::start(
            name,
            arguments,
            visible,
            self.mouth.clone(),
            self.results.clone(),
        );
        let process = process.map_err(EngineError::Start)?;
        let load = Request::Load(slot.load);
        process.ask(&load, None).map_err(EngineError::Connection)?;
        // Those that take its place need not say it again.
        slot.load.speaks = false;
        slot.ready = false;
        slot.process = Some(process);
        Ok(())
    }

    /// Waits for an event.
    fn wait(&mut self) -> Result<Told, EngineError> {
        loop {
            if self.stop.requested() {
                return Err(EsmError::Stopped.into());
            }
            match self.events.recv_timeout(POLL) {
                Ok(event) => return self.hear(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the pool has a sender"),
            }
        }
    }

    /// Takes in an event.
    fn hear(&mut self, event: Event) -> Result<Told, EngineError> {
        let worker = event.from.worker;
        let slot = &mut self.slots[worker];
        if slot.process.as_ref().map(|process| process.name) != Some(event.from) {
            // Of a process that is no worker any more.
            return Ok(Told::Nothing);
        }
        match event.said {
            Some((Answer::Ready(facts), _)) => {
                slot.ready = true;
                slot.failed = 0;
                match &self.facts {
                    Some(first) if !first.agrees_with(&facts) => Err(EngineError::Worker {
                        exit: Exit::Data,
                        message: format!(
                            "{}: changed while workers loaded it",
                            plmkit_contract::path_text(&self.config.model)
                        ),
                    }),
                    _ => {
                        self.facts = Some(facts);
                        Ok(Told::Ready)
                    }
                }
            }
            Some((Answer::Parity(parity), _)) => Ok(Told::Parity(parity)),
            Some((Answer::Pack(results), Some(rows))) => {
                self.given_up = 0;
                Ok(Told::Pack(worker, Box::new(results), rows))
            }
            // One that takes a place finds what the others had found when they began, or it is no help.
            Some((Answer::Failed { message, .. }, _)) if !slot.ready && self.facts.is_some() => {
                self.lost(worker, Exit::Transient, &message)
            }
            Some((Answer::Failed { exit, message }, _)) => {
                match Exit::TABLE.iter().find(|(known, _)| known.code() == exit) {
                    Some(&(exit, _)) if exit != Exit::Transient && exit != Exit::Internal => {
                        Err(EngineError::Worker { exit, message })
                    }
                    known => {
                        let exit = known.map_or(Exit::Internal, |&(exit, _)| exit);
                        self.lost(worker, exit, &message)
                    }
                }
            }
            Some((Answer::Pack(_), None)) => self.lost(worker, Exit::Internal, "it sent no rows"),
            None => {
                let ending = slot.process.take().map(Process::ending);
                self.lost(worker, Exit::Transient, &ending.unwrap_or_default())
            }
        }
    }

    /// Replaces a worker, unless that was tried too often.
    fn lost(&mut self, worker: usize, exit: Exit, why: &str) -> Result<Told, EngineError> {
        let slot = &mut self.slots[worker];
        slot.process = None;
        self.lost_at = Some(Instant::now());
        if !slot.ready {
            slot.failed += 1;
        }
        slot.ready = false;
        let message = format!("worker {worker} is lost: {why}");
        let replaced = slot.failed < TRIES && self.begin(worker).is_ok();
        if replaced {
            tracing::warn!("{message}; another takes its place");
        } else if self.slots.iter().all(|slot| slot.process.is_none()) {
            return Err(EngineError::Worker { exit, message });
        } else {
            tracing::warn!("{message}; the run goes on without it");
        }
        Ok(Told::Lost(worker))
    }

    /// So many packs more were given up.
    fn give_up(&mut self, packs: usize) -> Result<(), EngineError> {
        self.given_up += packs;
        // What takes all workers at once may cost each of them its pack.
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

impl Drop for Pool<'_> {
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
