//! A folder to work in, and a driver that is or is not there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plmkit_logs::GpuSample;
use plmkit_logs::gpu_parquet::GpuSamples;
use tempfile::TempDir;

use crate::common::program;

pub(crate) const HEADER: &str = plmkit_logs::gpu_csv::HEADER;

/// A temporary folder in which `monitor-log` runs, without a driver unless one is installed.
pub(crate) struct Case(TempDir);

impl Case {
    pub(crate) fn new() -> Self {
        let case = Self(tempfile::tempdir().expect("temp folder"));
        fs::create_dir(case.path("driver")).expect("folder");
        // Found before the system's own, and no library: the tests see the same on a machine with a GPU.
        fs::write(case.path("driver/libnvidia-ml.so.1"), "not a library").expect("write");
        case
    }

    /// The same with the GPUs of `fake_nvml.c`.
    pub(crate) fn with_gpus() -> Self {
        let case = Self::new();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(case.path("driver/libnvidia-ml.so.1"))
            .arg(fixture("fake_nvml.c"))
            .status()
            .expect("cc");
        assert!(compiled.success());
        case
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("write");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }

    /// `monitor-log ARGS`, to be run in the folder.
    pub(crate) fn command(&self, args: &str) -> Command {
        // What is ignored is inherited, and shells ignore SIGINT for what they run in the background.
        let mut command = Command::new("env");
        command
            .arg("--default-signal")
            .arg(program("monitor-log"))
            .current_dir(self.0.path())
            .env("LD_LIBRARY_PATH", self.path("driver"))
            .args(args.split(' '));
        command
    }

    pub(crate) fn run(&self, args: &str) -> Output {
        self.command(args).output().expect("run")
    }

    /// `monitor-log record --out gpu.csv --interval 20ms -- sh -c SCRIPT`
    pub(crate) fn wrap(&self, script: &str) -> Command {
        let mut command = self.command("record --out gpu.csv --interval 20ms -- sh -c");
        command.arg(script);
        command
    }

    /// The samples of a log or a Parquet file.
    pub(crate) fn samples(&self, name: &str) -> Vec<GpuSample> {
        let samples = GpuSamples::open(&self.path(name)).expect(name);
        samples.collect::<Result<_, _>>().expect("samples")
    }

    /// The rows of a log, each a full one.
    pub(crate) fn rows(&self, name: &str) -> Vec<String> {
        let text = self.read(name);
        let rows = text.strip_prefix(HEADER).expect("the header comes first");
        assert!(
            rows.is_empty() || rows.ends_with('\n'),
            "a torn line: {rows}"
        );
        rows.lines().map(str::to_owned).collect()
    }
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/monitor_log")
        .join(name)
}

/// Fails unless `text` contains `part`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "expected {part:?} in\n{text}");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends a signal, as `kill -NAME PID`.
pub(crate) fn kill(name: &str, pid: u32) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), pid.to_string()])
        .status()
        .expect("kill");
    assert!(sent.success());
}

/// How a process ended; `None` where it has not by then, and is killed.
pub(crate) fn wait_within(child: &mut Child, time: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Some(status) = child.try_wait().expect("wait") {
            return Some(status);
        }
        sleep(Duration::from_millis(10));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
    None
}

/// Waits until something is so.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited for 20 s");
        sleep(Duration::from_millis(10));
    }
}
