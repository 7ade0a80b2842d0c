//! Tasks on the threads of a pool.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use rayon::{ScopeFifo, Yield};

/// Starts tasks. The thread that starts them belongs to the pool, and works on them while it waits: one thread is enough.
#[derive(Clone, Copy)]
pub(crate) struct Tasks<'a, 'scope>(pub(crate) &'a ScopeFifo<'scope>);

/// The result of a task.
pub(crate) struct Task<T>(Receiver<T>);

impl<'scope> Tasks<'_, 'scope> {
    /// Starts a task after those that were started before.
    pub(crate) fn start<T: Send + 'scope>(
        self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Task<T> {
        let (sender, result) = sync_channel(1);
        self.0.spawn_fifo(move |_| {
            // Nobody waits for the result after an error.
            let _ = sender.send(work());
        });
        Task(result)
    }
}

impl<T> Task<T> {
    /// Waits for the result.
    ///
    /// # Panics
    /// If the task panicked.
    pub(crate) fn wait(self) -> T {
        loop {
            match self.0.try_recv() {
                Ok(result) => return result,
                Err(TryRecvError::Disconnected) => panic!("a task panicked"),
                Err(TryRecvError::Empty) => {}
            }
            // All tasks are done or in work, so that this thread may sleep.
            if rayon::yield_now() != Some(Yield::Executed) {
                return self.0.recv().expect("a task panicked");
            }
        }
    }
}
