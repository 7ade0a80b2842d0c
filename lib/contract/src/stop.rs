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
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks every holder to stop.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for a signal handler that can only store to an atomic.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
