//! Threads that work until they are stopped, and are left behind where they hang.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// How long a stop waits for the thread. Neither a driver nor a file system that hangs may hold up an end for longer.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A thread that works until it is stopped.
pub struct Background<T> {
    stop: Sender<()>,
    result: Receiver<T>,
}

/// Why a thread that was stopped has no result.
pub enum NoResult {
    /// It hangs, and was left behind.
    Hangs,
    /// It panicked.
    Failed,
}

/// Tells a thread when it is stopped. It is the clock of the thread, too: nothing else wakes it.
pub struct StopSignal(Receiver<()>);

impl StopSignal {
    /// Waits for `pause`; false where the thread was stopped meanwhile.
    pub fn pause(&self, pause: Duration) -> bool {
        self.0.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` in a thread of its own.
    pub fn start(
        name: &str,
        work: impl FnOnce(&StopSignal) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (sender, result) = mpsc::channel();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // A thread that was left behind has nobody to tell.
                let _ = sender.send(work(&StopSignal(stopped)));
            })?;
        Ok(Self { stop, result })
    }

    /// Stops the thread and waits for its result, for two seconds at most.
    pub fn stop(self) -> Result<T, NoResult> {
        // A thread that has ended already hears no more.
        let _ = self.stop.send(());
        self.result
            .recv_timeout(STOP_TIMEOUT)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => NoResult::Hangs,
                RecvTimeoutError::Disconnected => NoResult::Failed,
            })
    }
}
