//! A worker process, seen from the run that started it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use plmkit_contract::Exit;
use plmkit_esm2::{Buffers, CUDA_VISIBLE_DEVICES};

use super::message::{Message, encode, receive};
use crate::EngineError;

/// This program, even after its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long a worker may take to exit after it has hung up.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running worker. It is killed on drop.
pub(crate) struct Process {
    /// Unique among all processes of the run.
    pub(crate) number: u64,
    /// Whether it has loaded the model.
    pub(crate) ready: bool,
    child: Child,
    /// Frames for the worker.
    requests: Sender<Vec<u8>>,
}

impl Process {
    /// Starts this program with `arguments`, and with `visible` as `CUDA_VISIBLE_DEVICES`. Its answers come with its number, and `None`
    /// after it has hung up. Rows are in memory of `results`.
    ///
    /// The worker is killed when the calling thread ends.
    pub(crate) fn start(
        number: u64,
        arguments: &[OsString],
        visible: Option<&str>,
        answers: Sender<(u64, Option<Message>)>,
        results: Buffers<u8>,
    ) -> io::Result<Self> {
        let (mut line, theirs) = UnixStream::pair()?;
        // Text that a library prints must not end up in the run's standard output.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let child = Command::new(PROGRAM)
            .arg0("gpu-embed")
            .args(arguments)
            .stdin(OwnedFd::from(theirs))
            .stdout(stderr)
            .envs(visible.map(|visible| (CUDA_VISIBLE_DEVICES, visible)))
            .spawn()?;
        let (requests, frames) = unbounded::<Vec<u8>>();
        let process = Self {
            number,
            ready: false,
            child,
            requests,
        };
        let mut line_in = line.try_clone()?;
        // Both threads end with the worker, or with this object.
        spawn("worker-in", move || {
            // If the worker has gone, the other thread reports it.
            while let Ok(frame) = frames.recv()
                && line_in.write_all(&frame).is_ok()
            {}
        })?;
        spawn("worker-out", move || {
            loop {
                // An unreadable frame was cut by the end of the worker.
                let answer = receive(&mut line, &results).unwrap_or(None);
                let ended = answer.is_none();
                if answers.send((number, answer)).is_err() || ended {
                    break;
                }
            }
        })?;
        Ok(process)
    }

    /// Sends a request. Success does not mean that the worker has received it.
    pub(crate) fn send(&self, request: &Message) -> Result<(), EngineError> {
        let mut frame = Vec::new();
        encode(&mut frame, request).map_err(EngineError::Connection)?;
        let _ = self.requests.send(frame);
        Ok(())
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the worker, without waiting for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for a worker that has hung up. Returns the exit code of a run that fails for its reason, and describes how it ended.
    pub(crate) fn describe_end(&mut self) -> (Exit, String) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return describe_exit(status);
            }
            sleep(Duration::from_millis(5));
        }
        (Exit::Transient, "it hung up and did not end".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run)?;
    Ok(())
}

fn describe_exit(status: ExitStatus) -> (Exit, String) {
    let text = match (status.signal(), status.code()) {
        (Some(9), _) => "killed by signal 9, as the kernel does when memory runs out".to_owned(),
        (Some(signal), _) => format!("killed by signal {signal}"),
        (_, Some(75)) => "it ended with exit code 75, as where memory is refused".to_owned(),
        (_, Some(code)) => format!("it ended with exit code {code}"),
        _ => status.to_string(),
    };
    match status.code() {
        Some(70) => (Exit::Internal, text),
        _ => (Exit::Transient, text),
    }
}
