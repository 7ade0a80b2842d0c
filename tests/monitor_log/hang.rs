//! A driver or a log that hangs, and a log that another process writes: the command never waits.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::case::{Case, assert_contains, kill, wait_until, wait_within};

/// Starts a command with a driver that hangs while there is a file `hang`.
fn start(case: &Case, mut command: Command) -> Child {
    command.env("FAKE_NVML_HANG", case.path("hang"));
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end, for two seconds of patience on a busy machine. Returns the status and the standard error.
fn end(mut child: Child) -> (ExitStatus, String) {
    let status = wait_within(&mut child, Duration::from_secs(8)).expect("it ends");
    let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    (status, stderr)
}

#[test]
fn a_hanging_driver_does_not_delay_the_end_of_the_command() {
    let case = Case::with_gpus();
    case.write("hang", "");
    let command = case.command("record --out gpu.csv -- sh -c exit\t7");
    let (status, stderr) = end(start(&case, command));
    assert_eq!(status.code(), Some(7));
    let message = "the driver does not answer; its values are missing";
    assert_eq!(stderr.matches(message).count(), 1, "{stderr}");
    let samples = case.samples("gpu.csv");
    // The driver gives the names of a GPU whose first reading hangs.
    let uuids = samples.iter().filter(|row| row.index == Some(3));
    let mut uuids = uuids.map(|row| row.uuid.as_deref());
    assert_eq!(uuids.next_back(), Some(Some("GPU-3")));
}

#[test]
fn a_hanging_driver_does_not_delay_a_signal() {
    let case = Case::with_gpus();
    for args in [
        "record --out gpu.csv --interval 20ms",
        "export --listen 127.0.0.1:0 --interval 20ms",
    ] {
        let child = start(&case, case.command(args));
        // The driver answers at first.
        sleep(Duration::from_millis(600));
        case.write("hang", "");
        sleep(Duration::from_millis(1200));
        kill("TERM", child.id());
        let (status, stderr) = end(child);
        assert_eq!(status.signal(), Some(15), "{args}");
        assert_contains(&stderr, "the driver does not answer");
        std::fs::remove_file(case.path("hang")).unwrap();
    }
}

#[test]
fn a_hanging_log_does_not_delay_the_end_of_the_command() {
    let case = Case::with_gpus();
    let mut mkfifo = Command::new("mkfifo");
    assert!(mkfifo.arg(case.path("gpu.csv")).status().unwrap().success());
    // Open, full, and not read.
    let mut pipe = File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(case.path("gpu.csv"))
        .unwrap();
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    let (status, stderr) = end(start(&case, case.wrap("exit 7")));
    assert_eq!(status.code(), Some(7));
    assert_contains(&stderr, "the driver or the log does not answer");
}

#[test]
fn one_recording_at_a_time_writes_a_log() {
    let case = Case::with_gpus();
    let count_rows = || {
        let log = std::fs::read_to_string(case.path("gpu.csv"));
        log.map_or(0, |log| log.lines().count())
    };
    let first = start(&case, case.command("record --out gpu.csv --interval 20ms"));
    wait_until(|| count_rows() > 3);

    let second = case.run("record --out gpu.csv");
    let busy = "gpu.csv: another process is writing it";
    crate::common::assert_failed(&second, 75, busy);

    // A command runs without a record.
    let (status, stderr) = end(start(&case, case.wrap("exit 7")));
    assert_eq!(status.code(), Some(7));
    assert_eq!(stderr.matches(busy).count(), 1, "{stderr}");
    kill("TERM", first.id());
    end(first);
    let samples = case.samples("gpu.csv");
    assert_eq!(case.rows("gpu.csv").len(), samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample.boot_s));
}

#[test]
fn a_command_that_ends_before_the_log_is_free_leaves_the_log_alone() {
    let case = Case::with_gpus();
    let record = case.command("record --out gpu.csv --interval 20ms");
    let first = start(&case, record);
    wait_until(|| case.path("gpu.csv").exists());
    for (command, code) in [("sh -c exit\t7", 7), ("no-such-command", 127)] {
        let other = case.run(&format!("record --out gpu.csv -- {command}"));
        assert_eq!(other.status.code(), Some(code));
    }
    assert!(case.path("gpu.csv").exists());
    kill("TERM", first.id());
    end(first);
    assert!(!case.samples("gpu.csv").is_empty());
}
