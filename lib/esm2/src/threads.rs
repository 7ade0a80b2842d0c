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

/// Sets the number of libtorch's threads. libtorch starts all at once, and ends the process if it cannot.
pub(crate) fn set_libtorch_threads(threads: NonZeroUsize) {
    let threads = i32::try_from(threads.get()).unwrap_or(i32::MAX);
    if tch::get_num_threads() != threads {
        tch::set_num_threads(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtorch_reports_what_was_set() {
        set_libtorch_threads(NonZeroUsize::new(2).unwrap());
        assert_eq!(tch::get_num_threads(), 2);
        set_libtorch_threads(NonZeroUsize::MIN);
        assert_eq!(tch::get_num_threads(), 1);
    }
}
