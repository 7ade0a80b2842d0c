//! A worker process, seen from the run that started it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use crossbeam_channel::{Sender, unbounded};
use plmkit_esm2::{Buffers, CUDA_VISIBLE_DEVICES};

use super::message::{Answer, Request, frame, receive};
use crate::EngineError;

/// This program, also after its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long a worker that hung up may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A message of a worker.
pub(crate) struct Message {
    pub(crate) from: ProcessId,
    /// `None` where it has hung up.
    pub(crate) answer: Option<(Answer, Option<RecordBatch>)>,
}

/// The process of a worker: `worker` is the same for one that takes the place of another, `start` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) worker: usize,
    pub(crate) start: u64,
}

/// A running worker. It is killed on drop.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    child: Child,
    /// Frames for it; taken out on drop.
    requests: Option<Sender<Vec<u8>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Process {
    /// Starts this program with `arguments`, and with `visible` as the GPUs that CUDA shows to it. Its answers go
    /// to `messages`, with rows in memory of `results`.
    ///
    /// To be called by a thread that lives as long as the worker is to: the worker is killed when that thread ends.
    pub(crate) fn start(
        id: ProcessId,
        arguments: &[OsString],
        visible: Option<&str>,
        messages: Sender<Message>,
        results: Buffers<u8>,
    ) -> io::Result<Self> {
        let (here, there) = UnixStream::pair()?;
        // What a library prints must not end up between the run's own results.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        let child = Command::new(PROGRAM)
            .arg0("gpu-embed")
            .args(arguments)
            .stdin(OwnedFd::from(there))
            .stdout(stderr)
            .envs(visible.map(|visible| (CUDA_VISIBLE_DEVICES, visible)))
            .spawn()?;
        let mut process = Self {
            id,
            child,
            requests: None,
            threads: Vec::new(),
        };
        let (requests, frames) = unbounded::<Vec<u8>>();
        process.requests = Some(requests);
        let mut line = here.try_clone()?;
        process.thread("worker-in", move || {
            // A worker that has gone says so at the other end.
            while let Ok(frame) = frames.recv()
                && io::Write::write_all(&mut line, &frame).is_ok()
            {}
        })?;
        let mut line = here;
        process.thread("worker-out", move || {
            loop {
                // What cannot be read was cut by the end of the worker.
                let answer = receive(&mut line, &results).unwrap_or(None);
                let ended = answer.is_none();
                if messages.send(Message { from: id, answer }).is_err() || ended {
                    break;
                }
            }
        })?;
        Ok(process)
    }

    fn thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(run)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Sends a request. Only its answer says that it has arrived.
    pub(crate) fn send(
        &self,
        request: &Request,
        body: Option<&RecordBatch>,
    ) -> Result<(), EngineError> {
        let frame = frame(request, body).map_err(EngineError::Connection)?;
        if let Some(requests) = &self.requests {
            let _ = requests.send(frame);
        }
        Ok(())
    }

    /// Its number in the system.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, without waiting for that.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// How a worker that has hung up ended, in words.
    pub(crate) fn describe_ending(mut self) -> String {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return describe_exit(status);
            }
            sleep(Duration::from_millis(5));
        }
        "it hung up and did not end".to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
        self.requests = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn describe_exit(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(9), _) => "killed by signal 9, as the kernel does when memory runs out".to_owned(),
        (Some(signal), _) => format!("killed by signal {signal}"),
        (_, Some(75)) => "it ended with exit code 75, as where memory is refused".to_owned(),
        (_, Some(code)) => format!("it ended with exit code {code}"),
        _ => status.to_string(),
    }
}
