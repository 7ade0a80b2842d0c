//! A request to stop, set by a signal handler and polled by long loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shared flag: once set, every loop that holds a clone ends at its next safe point and cleans up.
///
/// ```
/// let stop = plmkit_contract::Stop::default();
/// let seen_by_a_worker = stop.clone();
/// assert!(!seen_by_a_worker.requested());
/// stop.request();
/// assert!(seen_by_a_worker.requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    interruptible: Arc<AtomicBool>,
}

impl Stop {
    /// Asks every holder to stop.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Makes a call that cannot poll and may hang, as one into a driver: a signal meanwhile ends the process at once. So it
    /// is for a program that has nothing to clean up yet.
    pub fn interruptible<T>(&self, call: impl FnOnce() -> T) -> T {
        self.interruptible.store(true, Ordering::SeqCst);
        let answer = call();
        self.interruptible.store(false, Ordering::SeqCst);
        answer
    }

    /// The flag itself, for a signal handler that can only store to an atomic.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Whether such a call is being made, for a signal handler.
    pub fn interruptible_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interruptible)
    }
}
