//! Threads that work until they are stopped, and are abandoned if they hang.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Limits how long a hanging driver or file system delays the exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// A thread that works until it is stopped.
pub struct Background {
    stop: Sender<()>,
    ended: Receiver<()>,
}

/// Tells a thread that it is stopped, and is its clock.
pub struct StopSignal(Receiver<()>);

impl StopSignal {
    /// Waits. Returns false if the thread was stopped meanwhile.
    pub fn pause(&self, pause: Duration) -> bool {
        self.0.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
    }
}

impl Background {
    /// Starts `work` in a new thread.
    pub fn start(name: &str, work: impl FnOnce(&StopSignal) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (sender, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            work(&StopSignal(stopped));
            // Fails if the thread was abandoned.
            let _ = sender.send(());
        })?;
        Ok(Self { stop, ended })
    }

    /// Stops the thread and waits for its end, at most two seconds. After that it `hangs`, which is logged, and is abandoned. A
    /// panic has printed its own message.
    pub fn stop(self, hangs: &str) {
        // Fails if the thread has ended already.
        let _ = self.stop.send(());
        if self.ended.recv_timeout(STOP_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("{hangs}");
        }
    }
}
