//! The number of CPU threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

static THREADS: AtomicUsize = AtomicUsize::new(1);

/// Sets the number of threads that compute a batch.
pub fn set_threads(threads: NonZeroUsize) {
    THREADS.store(threads.get(), Ordering::Relaxed);
}

/// Returns the number of threads that compute a batch.
pub(crate) fn threads() -> NonZeroUsize {
    NonZeroUsize::new(THREADS.load(Ordering::Relaxed)).unwrap_or(NonZeroUsize::MIN)
}
