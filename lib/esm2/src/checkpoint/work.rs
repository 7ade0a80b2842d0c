//! What all threads do together while a model is loaded: hashing, and packing of weights while they are in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use blake3::hazmat::ChainingValue;
use plmkit_contract::Stop;

use super::digest::Input;
use super::layers::Job;
use super::stored::Entry;
use crate::EsmError;
use crate::threads::threads;

/// A piece of what is hashed, if anything is, and the panels whose weights begin in it.
#[derive(Default)]
struct Task<'a> {
    hash: Option<(&'a Input<'a>, usize)>,
    jobs: Vec<Job<'a>>,
}

/// Tasks, handed out in their order.
struct Tasks<'a> {
    all: Vec<Mutex<Task<'a>>>,
    hashes: Vec<OnceLock<ChainingValue>>,
    next: AtomicUsize,
    stop: &'a Stop,
}

/// Hashes `input`.
pub(super) fn hash(input: &Input<'_>, stop: &Stop) -> Result<String, EsmError> {
    Ok(hash_and_pack(input, Vec::new(), stop, || Ok(()))?.0)
}

/// Hashes `input`, packs panels and does something `alongside`. Returns the digest, too.
pub(super) fn hash_and_pack<T>(
    input: &Input<'_>,
    jobs: Vec<Job<'_>>,
    stop: &Stop,
    alongside: impl FnOnce() -> Result<T, EsmError>,
) -> Result<(String, T), EsmError> {
    let mut tasks: Vec<Task<'_>> = (0..input.pieces())
        .map(|piece| Task {
            hash: Some((input, piece)),
            jobs: Vec::new(),
        })
        .collect();
    for job in jobs {
        let (entry, at) = job.begins();
        let piece = input.piece_of(entry, at).expect("all weights are hashed");
        tasks[piece].jobs.push(job);
    }
    let tasks = Tasks::new(tasks, stop);
    let done = tasks.on_threads(alongside)?;
    let hashes = tasks.hashes.into_iter();
    let hashes: Vec<_> = hashes.filter_map(OnceLock::into_inner).collect();
    Ok((input.digest(&hashes), done))
}

/// Packs panels.
pub(super) fn pack(jobs: Vec<Job<'_>>, stop: &Stop) -> Result<(), EsmError> {
    let tasks = jobs.into_iter().map(|job| Task {
        hash: None,
        jobs: vec![job],
    });
    Tasks::new(tasks.collect(), stop).on_threads(|| Ok(()))
}

impl<'a> Tasks<'a> {
    fn new(tasks: Vec<Task<'a>>, stop: &'a Stop) -> Self {
        for task in &tasks {
            if let Some((input, piece)) = task.hash {
                input.tensors(piece).for_each(Entry::announce);
            }
            task.jobs.iter().for_each(Job::announce);
        }
        Self {
            hashes: tasks.iter().map(|_| OnceLock::new()).collect(),
            all: tasks.into_iter().map(Mutex::new).collect(),
            next: AtomicUsize::new(0),
            stop,
        }
    }

    /// Does them all, this thread among others once it has done what is to be done `alongside`.
    fn on_threads<T>(
        &self,
        alongside: impl FnOnce() -> Result<T, EsmError>,
    ) -> Result<T, EsmError> {
        let done = thread::scope(|scope| {
            for _ in 1..threads().get().min(self.all.len()) {
                let thread = thread::Builder::new().name("loading".to_owned());
                // Where no more threads can be had, those that are there do the work.
                if thread.spawn_scoped(scope, || self.work()).is_err() {
                    break;
                }
            }
            let done = alongside();
            if done.is_ok() {
                self.work();
            } else {
                self.next.store(self.all.len(), Ordering::Relaxed);
            }
            done
        });
        if self.stop.requested() {
            return Err(EsmError::Stopped);
        }
        done
    }

    fn work(&self) {
        while !self.stop.requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = self.all.get(next) else {
                return;
            };
            let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
            let Task { hash, jobs } = std::mem::take(&mut *task);
            if let Some((input, piece)) = hash {
                let _ = self.hashes[next].set(input.hash(piece));
                input.tensors(piece).for_each(Entry::was_read);
            }
            for job in jobs {
                job.pack();
            }
        }
    }
}
