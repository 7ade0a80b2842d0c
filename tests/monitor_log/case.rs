//! A folder to work in, with a fake driver or none.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plmkit_logs::gpu_csv::GpuCsvReader;
use plmkit_logs::{GpuSample, Timestamp};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{compile_driver, program};

pub(crate) const HEADER: &str = plmkit_logs::gpu_csv::HEADER;

/// A temporary folder in which `monitor-log` runs without a driver, even if one is installed.
pub(crate) struct Case(TempDir);

impl Case {
    pub(crate) fn new() -> Self {
        let case = Self(tempfile::tempdir().expect("temp folder"));
        fs::create_dir(case.path("driver")).expect("folder");
        // Found before the system's own, and no library: a machine with a GPU gives the same results.
        case.write("driver/libnvidia-ml.so.1", "not a library");
        case
    }

    /// A case with the GPUs of `fake_nvml.c`.
    pub(crate) fn with_gpus() -> Self {
        Self::with_driver(&[])
    }

    /// A case with the GPUs of `fake_nvml.c`, compiled with options.
    pub(crate) fn with_driver(options: &[&str]) -> Self {
        let case = Self::new();
        compile_driver(&case.path("driver/libnvidia-ml.so.1"), options);
        case
    }

    /// A case with the logs of two runs on the first of two GPUs.
    pub(crate) fn with_logs() -> Self {
        let case = Self::new();
        for name in ["events.jsonl", "gpu.csv"] {
            fs::copy(fixture(name), case.path(name)).expect("copy");
        }
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
        // Ignored signals are inherited, and shells ignore SIGINT for background jobs.
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

    /// Runs `monitor-log ARGS` and returns its exit code and its standard error.
    pub(crate) fn code_and_stderr(&self, args: &str) -> (i32, String) {
        let output = self.run(args);
        let code = output.status.code().expect("an exit code");
        (code, text(&output.stderr))
    }

    /// Returns the report of `monitor-log report ARGS`.
    pub(crate) fn report(&self, args: &str) -> Value {
        let (code, stderr) = self.code_and_stderr(&format!("report --out report.json {args}"));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&self.read("report.json")).expect("JSON")
    }

    /// Returns the text of `monitor-log report ARGS`.
    pub(crate) fn printed(&self, args: &str) -> String {
        let output = self.run(&format!("report {args}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// `monitor-log record --out gpu.csv --interval 20ms -- sh -c SCRIPT`
    pub(crate) fn wrap(&self, script: &str) -> Command {
        let mut command = self.command("record --out gpu.csv --interval 20ms -- sh -c");
        command.arg(script);
        command
    }

    /// Starts `monitor-log ARGS`, sends it a signal after a while, and expects it to die of that.
    pub(crate) fn kill_after(&self, args: &str, time: Duration, (name, number): (&str, i32)) {
        let mut child = self.command(args).spawn().expect("start");
        sleep(time);
        kill(name, child.id());
        assert_eq!(child.wait().expect("wait").signal(), Some(number), "{args}");
    }

    /// The samples of a log or a Parquet file.
    pub(crate) fn samples(&self, name: &str) -> Vec<GpuSample> {
        let log = self.read(name);
        let samples = GpuCsvReader::new(log.as_bytes(), name);
        samples.collect::<Result<_, _>>().expect("samples")
    }

    /// The rows of a log, which must end with a complete line.
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/monitor_log");
    folder.join(name)
}

/// The first lines of the run events, at these seconds of the run as if it worked now.
pub(crate) fn events_of_now(lines: usize, seconds: &[&str]) -> String {
    let log = fs::read_to_string(fixture("events.jsonl")).expect("events");
    let mut log: String = log.split_inclusive('\n').take(lines).collect();
    for second in seconds {
        let time = format!("2026-01-31T12:00:{second}Z");
        log = log.replace(&time, &Timestamp::now().to_string());
    }
    log
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
    let mut kill = Command::new("kill");
    kill.args([format!("-{name}"), pid.to_string()]);
    assert!(kill.status().expect("kill").success());
}

/// Waits for the end of a process. A process that takes longer is killed and has no status.
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

/// Waits until a condition holds.
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    wait_for(|| {
        if condition() {
            Ok(())
        } else {
            Err(String::new())
        }
    });
}

/// Waits for a value. The error tells what was found instead.
pub(crate) fn wait_for<T>(value: impl Fn() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match value() {
            Ok(value) => return value,
            Err(found) => assert!(start.elapsed().as_secs() < 20, "waited for 20 s: {found}"),
        }
        sleep(Duration::from_millis(10));
    }
}
