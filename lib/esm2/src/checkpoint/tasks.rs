//! Loads a model on several threads: hashes weights, checks sums, and packs weights while they are in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use plmkit_contract::Stop;

use super::checksums::Checksums;
use super::digest::{DigestInput, PieceHash};
use super::layers::Job;
use super::stored_tensor::StoredTensor;
use crate::EsmError;
use crate::threads::threads;

/// A piece to hash, if any, and the checksum chunks and panels that begin in it.
#[derive(Default)]
struct Task<'a> {
    piece: Option<(&'a DigestInput<'a>, usize)>,
    chunks: Vec<(&'a Checksums<'a>, usize)>,
    jobs: Vec<Job<'a>>,
}

/// Tasks that threads take in order.
struct Tasks<'a> {
    queue: Vec<Mutex<Task<'a>>>,
    hashes: Vec<OnceLock<PieceHash>>,
    next: AtomicUsize,
    stop: &'a Stop,
}

/// Returns the digest of `input`, or an error if a weight is not finite.
pub(super) fn hash(input: &DigestInput<'_>, stop: &Stop) -> Result<String, EsmError> {
    let tasks = Tasks::new(pieces(input).collect(), stop);
    tasks.run(|| Ok::<_, EsmError>(()))?;
    tasks.digest(input)
}

/// Hashes `input`, verifies `checksums`, packs panels and calls `alongside` meanwhile. Returns the digest and the result of
/// `alongside`.
pub(super) fn hash_and_pack<T, E: From<EsmError>>(
    input: &DigestInput<'_>,
    checksums: &Checksums<'_>,
    jobs: Vec<Job<'_>>,
    stop: &Stop,
    alongside: impl FnOnce() -> Result<T, E>,
) -> Result<(String, T), E> {
    let mut tasks: Vec<Task<'_>> = pieces(input).collect();
    for (number, chunk) in checksums.chunks().enumerate() {
        let piece = input.piece_near(chunk.as_ptr().addr());
        tasks[piece].chunks.push((checksums, number));
    }
    for job in jobs {
        tasks[input.piece_near(job.address())].jobs.push(job);
    }
    let tasks = Tasks::new(tasks, stop);
    let result = tasks.run(alongside)?;
    // Before the check of values: damage explains a bad value.
    checksums.verify().map_err(EsmError::from)?;
    Ok((tasks.digest(input)?, result))
}

fn pieces<'a>(input: &'a DigestInput<'a>) -> impl Iterator<Item = Task<'a>> {
    (0..input.pieces()).map(move |piece| Task {
        piece: Some((input, piece)),
        ..Task::default()
    })
}

/// Packs panels.
pub(super) fn pack(jobs: Vec<Job<'_>>) -> Result<(), EsmError> {
    let tasks = jobs.into_iter().map(|job| Task {
        jobs: vec![job],
        ..Task::default()
    });
    Tasks::new(tasks.collect(), &Stop::default()).run(|| Ok(()))
}

impl<'a> Tasks<'a> {
    fn new(tasks: Vec<Task<'a>>, stop: &'a Stop) -> Self {
        for task in &tasks {
            if let Some((input, piece)) = task.piece {
                input.tensors(piece).for_each(StoredTensor::add_reader);
            }
            task.jobs.iter().for_each(Job::add_reader);
        }
        Self {
            hashes: tasks.iter().map(|_| OnceLock::new()).collect(),
            queue: tasks.into_iter().map(Mutex::new).collect(),
            next: AtomicUsize::new(0),
            stop,
        }
    }

    fn digest(self, input: &DigestInput<'_>) -> Result<String, EsmError> {
        let hashes = self.hashes.into_iter();
        Ok(input.digest(hashes.filter_map(OnceLock::into_inner).collect())?)
    }

    /// Runs all tasks on other threads, and on this one after it has called `alongside`.
    fn run<T, E: From<EsmError>>(&self, alongside: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let result = thread::scope(|scope| {
            for _ in 1..threads().get().min(self.queue.len()) {
                let thread = thread::Builder::new().name("loading".to_owned());
                // If the system refuses a thread, the existing ones do the work.
                if thread.spawn_scoped(scope, || self.work()).is_err() {
                    break;
                }
            }
            let result = alongside();
            if result.is_ok() {
                self.work();
            } else {
                self.next.store(self.queue.len(), Ordering::Relaxed);
            }
            result
        });
        if self.stop.requested() {
            return Err(EsmError::Stopped.into());
        }
        result
    }

    fn work(&self) {
        while !self.stop.requested() {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = self.queue.get(next) else {
                return;
            };
            let mut task = task.lock().unwrap_or_else(PoisonError::into_inner);
            let Task {
                piece,
                chunks,
                jobs,
            } = std::mem::take(&mut *task);
            for (checksums, chunk) in chunks {
                checksums.sum(chunk);
            }
            if let Some((input, piece)) = piece {
                let _ = self.hashes[next].set(input.hash(piece));
                input.tensors(piece).for_each(StoredTensor::remove_reader);
            }
            jobs.into_iter().for_each(Job::pack);
        }
    }
}
