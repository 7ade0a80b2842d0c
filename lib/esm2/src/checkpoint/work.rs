//! What all threads do together while a model is loaded: hashing, and packing of weights while they are in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use plmkit_contract::Stop;

use super::checksums::Checksums;
use super::digest::{DigestInput, Hashed};
use super::layers::Job;
use super::stored::Entry;
use crate::EsmError;
use crate::threads::threads;

/// A piece of what is hashed, if anything is, the chunks of files that begin in it, and the panels whose weights do.
#[derive(Default)]
struct Task<'a> {
    hash: Option<(&'a DigestInput<'a>, usize)>,
    sums: Vec<(&'a Checksums<'a>, usize)>,
    jobs: Vec<Job<'a>>,
}

/// Tasks, handed out in their order.
struct Tasks<'a> {
    all: Vec<Mutex<Task<'a>>>,
    hashes: Vec<OnceLock<Hashed>>,
    next: AtomicUsize,
    stop: &'a Stop,
}

/// Hashes `input`, all of whose weights are to be finite.
pub(super) fn hash(input: &DigestInput<'_>, stop: &Stop) -> Result<String, EsmError> {
    let tasks = Tasks::new(pieces(input).collect(), stop);
    tasks.on_threads(|| Ok(()))?;
    tasks.digest(input)
}

/// Hashes `input`, compares `checksums`, packs panels and does something `alongside`. Returns the digest, too.
pub(super) fn hash_and_pack<T>(
    input: &DigestInput<'_>,
    checksums: &Checksums<'_>,
    jobs: Vec<Job<'_>>,
    stop: &Stop,
    alongside: impl FnOnce() -> Result<T, EsmError>,
) -> Result<(String, T), EsmError> {
    let mut tasks: Vec<Task<'_>> = pieces(input).collect();
    for (number, chunk) in checksums.chunks().enumerate() {
        let piece = input.piece_near(chunk.as_ptr().addr());
        tasks[piece].sums.push((checksums, number));
    }
    for job in jobs {
        let (entry, at) = job.begins();
        let piece = input.piece_of(entry, at).expect("all weights are hashed");
        tasks[piece].jobs.push(job);
    }
    let tasks = Tasks::new(tasks, stop);
    let done = tasks.on_threads(alongside)?;
    // Before values: damage explains more.
    checksums.verify()?;
    Ok((tasks.digest(input)?, done))
}

/// Hashes `input` piece by piece.
fn pieces<'a>(input: &'a DigestInput<'a>) -> impl Iterator<Item = Task<'a>> {
    (0..input.pieces()).map(move |piece| Task {
        hash: Some((input, piece)),
        ..Task::default()
    })
}

/// Packs panels.
pub(super) fn pack(jobs: Vec<Job<'_>>, stop: &Stop) -> Result<(), EsmError> {
    let tasks = jobs.into_iter().map(|job| Task {
        jobs: vec![job],
        ..Task::default()
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

    /// The digest of `input`, whose pieces they hashed.
    fn digest(self, input: &DigestInput<'_>) -> Result<String, EsmError> {
        let hashes = self.hashes.into_iter();
        Ok(input.digest(hashes.filter_map(OnceLock::into_inner).collect())?)
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
            let Task { hash, sums, jobs } = std::mem::take(&mut *task);
            for (checksums, chunk) in sums {
                checksums.sum(chunk);
            }
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
