//! Programs with a time limit.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The most time that a program may take to refuse a file.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The end of a program.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl RunResult {
    /// Whether the program refused its input: exit code 65 and one line that is not a panic.
    pub(crate) fn is_refusal(&self) -> bool {
        self.status.code() == Some(65)
            && self.stderr.trim_end().lines().count() == 1
            && !self.stderr.contains("panick")
            && !self.stderr.contains("internal error")
    }
}

/// Runs a program, and kills it after `patience`.
pub(crate) fn run_for(command: &mut Command, patience: Duration) -> RunResult {
    let start = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > patience {
            child.kill().expect("kill");
        }
        sleep(Duration::from_millis(5));
    };
    let took = start.elapsed();
    let mut stderr = String::new();
    let mut pipe = child.stderr.take().expect("a pipe");
    pipe.read_to_string(&mut stderr).expect("UTF-8");
    RunResult {
        status,
        stderr,
        took,
    }
}
