//! Threads that work until they are stopped, and are abandoned if they hang.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Limits how long a hanging driver or file system delays the exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A thread that works until it is stopped.
pub struct Background<T> {
    stop: Sender<()>,
    result: Receiver<T>,
}

/// Tells a thread that it is stopped, and is its clock.
pub struct StopSignal(Receiver<()>);

impl StopSignal {
    /// Waits. Returns false if the thread was stopped meanwhile.
    pub fn pause(&self, pause: Duration) -> bool {
        self.0.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` in a new thread.
    pub fn start(
        name: &str,
        work: impl FnOnce(&StopSignal) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (sender, result) = mpsc::channel();
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Fails if the thread was abandoned: nobody needs the result then.
                let _ = sender.send(work(&StopSignal(stopped)));
            })?;
        Ok(Self { stop, result })
    }

    /// Stops the thread and waits for its result, at most two seconds. After a timeout it hangs, and is abandoned; it is
    /// disconnected if it panicked.
    pub fn stop(self) -> Result<T, RecvTimeoutError> {
        // Fails if the thread has ended already.
        let _ = self.stop.send(());
        self.result.recv_timeout(STOP_TIMEOUT)
    }
}
