//! Threads that work on the same matrices, phase by phase.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where threads meet between phases. The other threads wait while the leader does something alone.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// How many times the leader has opened the barrier.
    opened: u64,
    /// Whether the threads that pass go on with their work.
    check_stop: bool,
    /// Whether a thread has panicked and will never arrive.
    poisoned: bool,
}

impl Barrier {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, waits: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self
            .changed
            .wait_while(self.lock(), |state| !state.poisoned && waits(state));
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if state.poisoned {
            drop(state);
            panic_any("another thread of the team panicked");
        }
        state
    }

    /// Waits until the leader opens the barrier. Returns whether to go on.
    pub(crate) fn pass(&self) -> bool {
        let opened = {
            let mut state = self.lock();
            state.waiting += 1;
            state.opened
        };
        self.changed.notify_all();
        self.wait_while(|state| state.opened == opened).check_stop
    }

    /// Waits for all `others`, runs `alone` while they wait, and opens the barrier. After an error the others stop.
    pub(crate) fn lead<E>(
        &self,
        others: usize,
        alone: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        drop(self.wait_while(|state| state.waiting < others));
        let done = alone();
        let mut state = self.lock();
        state.waiting = 0;
        state.opened += 1;
        state.check_stop = done.is_ok();
        drop(state);
        self.changed.notify_all();
        done
    }

    /// Runs the work of a thread. If it panics, so do the other threads, instead of waiting forever.
    pub(crate) fn guard<T>(&self, work: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.lock().poisoned = true;
            self.changed.notify_all();
            resume_unwind(panic)
        })
    }
}

/// Returns the number of the next of `count` work items, of which so many are `taken`.
pub(crate) fn next_item(taken: &AtomicUsize, count: usize) -> Option<usize> {
    let next = taken.fetch_add(1, Ordering::Relaxed);
    (next < count).then_some(next)
}

/// Gives each item to `work`, on up to `threads` threads.
pub(crate) fn share<T: Send>(threads: NonZeroUsize, items: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = threads.get().min(items.len());
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let thread = std::thread::Builder::new().name("kernels".to_owned());
            // If the system refuses a thread, the existing ones do the work.
            if thread.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_passes_before_the_leader_opens() {
        let barrier = Barrier::default();
        let (before, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 0..100 {
                        before.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(barrier.pass(), round < 99);
                        after.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for round in 1..=100 {
                let result = barrier.lead(3, || {
                    assert_eq!(before.load(Ordering::SeqCst), 3 * round);
                    if round < 100 { Ok(()) } else { Err(()) }
                });
                assert_eq!(result.is_ok(), round < 100);
            }
        });
        assert_eq!(after.load(Ordering::SeqCst), 300);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_ends_the_wait_of_others() {
        let barrier = Barrier::default();
        std::thread::scope(|scope| {
            scope.spawn(|| barrier.guard(|| panic!("on purpose")));
            let led = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                barrier.lead(1, || Ok::<(), ()>(()))
            }));
            assert!(led.is_err());
        });
    }
}
