//! Tasks on the threads of a pool.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use rayon::{ScopeFifo, Yield};

/// The result of a task. The thread that starts tasks belongs to the pool, and works on them while it waits: one thread is enough.
pub(crate) struct Task<T>(Receiver<T>);

impl<T> Task<T> {
    /// Starts a task after those that were started before.
    pub(crate) fn start<'scope>(
        tasks: &ScopeFifo<'scope>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Self
    where
        T: Send + 'scope,
    {
        let (sender, result) = sync_channel(1);
        tasks.spawn_fifo(move |_| {
            // Nobody waits for the result after an error.
            let _ = sender.send(work());
        });
        Self(result)
    }

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
