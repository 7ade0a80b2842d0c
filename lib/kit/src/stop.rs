//! A stop flag, set by signal handlers and polled by long loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shared stop flag. Once it is set, every loop that holds a clone cleans up and ends at its next safe point.
///
/// ```
/// let stop = plmkit_kit::Stop::default();
/// let clone = stop.clone();
/// assert!(!clone.requested());
/// stop.request();
/// assert!(clone.requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    interruptible: Arc<AtomicBool>,
    /// The flag of a program that uses this library as another library.
    of_program: Option<&'static AtomicBool>,
}

impl Stop {
    /// Follows the flag of a program.
    pub fn of(program: &'static AtomicBool) -> Self {
        Self {
            of_program: Some(program),
            ..Self::default()
        }
    }

    /// Requests a stop.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        let of_program = self
            .of_program
            .is_some_and(|flag| flag.load(Ordering::Relaxed));
        of_program || self.requested.load(Ordering::Relaxed)
    }

    /// Makes a call that cannot poll and may hang, such as one into a driver. During the call, a signal ends the process at
    /// once; the program must have nothing to clean up.
    pub fn interruptible<T>(&self, call: impl FnOnce() -> T) -> T {
        self.interruptible.store(true, Ordering::SeqCst);
        let result = call();
        self.interruptible.store(false, Ordering::SeqCst);
        result
    }

    /// Returns the stop flag, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Returns the flag that is set during an [interruptible](Self::interruptible) call, for a signal handler.
    pub fn interruptible_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interruptible)
    }
}
