//! The number of CPU threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::EsmError;

static THREADS: AtomicUsize = AtomicUsize::new(1);

/// Sets the number of threads that compute a batch.
pub fn set_threads(threads: NonZeroUsize) {
    THREADS.store(threads.get(), Ordering::Relaxed);
}

/// Returns the number of threads that compute a batch.
pub(crate) fn threads() -> NonZeroUsize {
    NonZeroUsize::new(THREADS.load(Ordering::Relaxed)).unwrap_or(NonZeroUsize::MIN)
}

/// Returns as many threads for loading, or fewer if the system refuses some.
pub(crate) fn pool() -> Result<ThreadPool, EsmError> {
    let mut count = threads().get();
    loop {
        let pool = ThreadPoolBuilder::new().num_threads(count);
        match pool.thread_name(|_| "loading".to_owned()).build() {
            Ok(pool) => return Ok(pool),
            Err(error) if count == 1 => return Err(EsmError::OutOfMemory(error.to_string())),
            Err(_) => count /= 2,
        }
    }
}
