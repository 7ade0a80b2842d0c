//! Tasks on the threads of a pool.

use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use rayon::{ScopeFifo, Yield};

/// Starts a task after those that were started before. The result is to be [waited](wait) for.
pub(crate) fn start<'scope, T: Send + 'scope>(
    tasks: &ScopeFifo<'scope>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Receiver<T> {
    let (sender, result) = sync_channel(1);
    tasks.spawn_fifo(move |_| {
        // Nobody waits for the result after an error.
        let _ = sender.send(work());
    });
    result
}

/// Waits for the result of a task. The thread that starts tasks belongs to the pool, and works on them while it waits: one thread is
/// enough.
///
/// # Panics
/// If the task panicked.
#[expect(clippy::needless_pass_by_value, reason = "there is one result")]
pub(crate) fn wait<T>(result: Receiver<T>) -> T {
    loop {
        match result.try_recv() {
            Ok(result) => return result,
            Err(TryRecvError::Disconnected) => panic!("a task panicked"),
            Err(TryRecvError::Empty) => {}
        }
        // All tasks are done or in work, so that this thread may sleep.
        if rayon::yield_now() != Some(Yield::Executed) {
            return result.recv().expect("a task panicked");
        }
    }
}
