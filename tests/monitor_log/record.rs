//! `record` without a command, and its log.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::case::{Case, HEADER, assert_contains, kill, text, wait_until};
use crate::common::{assert_failed, program};

/// The columns after `boot_s`.
const NO_VALUES: &str = ",,,,,,,,,,,,,,,,,,,,,,";

const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn without_a_driver_the_log_is_empty() {
    let case = Case::new();
    let output = case.wrap("sleep 0.3").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(
        stderr.matches("GPUs are not sampled: ").count(),
        1,
        "{stderr}"
    );
    assert!(case.rows("gpu.csv").is_empty());
}

#[test]
fn samples_have_the_clock_of_the_boot() {
    let case = Case::with_gpus();
    assert!(case.wrap("sleep 0.3").status().unwrap().success());
    let samples = case.samples("gpu.csv");
    assert!(samples.len() > 3, "{samples:?}");
    let boot_times = samples.iter().map(|sample| sample.boot_time().unwrap());
    let boot_times: Vec<(&str, f64)> = boot_times.collect();
    let (boot_id, first_s) = boot_times[0];
    assert!(boot_times.is_sorted() && boot_times.iter().all(|&(id, _)| id == boot_id));
    assert!(
        boot_times.last().unwrap().1 - first_s > 0.2,
        "{boot_times:?}"
    );
}

#[test]
fn quiet_is_an_option_of_monitor_log_and_not_of_the_command() {
    let output = Case::new().wrap("true").arg("--quiet").output().unwrap();
    assert!(output.status.success());
    let (code, stderr) = Case::new().code_and_stderr("--quiet record --out gpu.csv -- true");
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[test]
fn a_log_may_be_a_link_and_standard_output() {
    let case = Case::with_gpus();
    std::os::unix::fs::symlink("real.csv", case.path("gpu.csv")).unwrap();
    for _ in 0..2 {
        let output = case.wrap("sleep 0.1").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert!(case.samples("real.csv").len() > 4);
    let log = std::fs::File::create(case.path("redirected.csv")).unwrap();
    let mut command = case.command("record --out /dev/stdout -- true");
    assert!(command.stdout(log).status().unwrap().success());
    assert!(!case.samples("redirected.csv").is_empty());
}

#[test]
fn without_a_command_it_records_until_a_signal_and_dies_of_it() {
    for signal in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
        let case = Case::with_gpus();
        case.kill_after("record --out gpu.csv --interval 10ms", A_WHILE, signal);
        assert!(case.rows("gpu.csv").len() > 5);
    }
}

#[test]
fn after_kill_9_the_log_has_only_complete_lines() {
    let case = Case::with_gpus();
    let mut command = case.command("record --out gpu.csv --interval 10ms");
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    sleep(A_WHILE);
    child.kill().unwrap();
    child.wait().unwrap();
    let rows = case.rows("gpu.csv");
    assert!(rows.len() > 5);
    assert_eq!(case.samples("gpu.csv").len(), rows.len());
}

#[test]
fn a_second_recording_is_appended_and_a_torn_line_cut_off() {
    let case = Case::with_gpus();
    let first = format!("2026-01-31T12:00:00.000Z,b,7.0,{NO_VALUES}");
    case.write("gpu.csv", &format!("{HEADER}{first}\n2026-01-31T12:0"));
    assert!(case.wrap("true").status().unwrap().success());
    let rows = case.rows("gpu.csv");
    assert_eq!(rows[0], first);
    assert!(rows.len() > 1, "{rows:?}");
    assert_eq!(case.samples("gpu.csv").len(), rows.len());
}

#[test]
fn mistakes_on_the_command_line_leave_no_log() {
    let case = Case::new();
    for interval in ["1", "0s", "-1s", "25h", "fast"] {
        let record = format!("record --out gpu.csv --interval={interval} -- true");
        assert_eq!(case.run(&record).status.code(), Some(2), "{interval}");
    }
    for (args, message) in [
        (
            "--quiet",
            "expected a command: record, top, export, report or estimate",
        ),
        (
            "record --out gpu.parquet -- true",
            "--out gpu.parquet: expected a name of a CSV file",
        ),
        (
            "record --out gpu.csv --",
            "expected a command after --, found none",
        ),
    ] {
        assert_failed(&case.run(args), 2, message);
    }
    assert!(!case.path("gpu.csv").exists());
}

#[test]
fn a_library_that_cannot_be_loaded_is_named() {
    let case = Case::with_gpus();
    let record = "record --out gpu.csv --nvml missing/libnvidia-ml.so.1 -- true";
    let (code, stderr) = case.code_and_stderr(record);
    assert_eq!(code, 0);
    assert_contains(&stderr, "missing/libnvidia-ml.so.1");
    assert!(case.samples("gpu.csv").is_empty());
}

/// Limits the size of the files that a process may write, as a full disk does.
fn limit_files(pid: u32, bytes: &str) {
    let mut prlimit = Command::new("prlimit");
    prlimit.args([format!("--pid={pid}"), format!("--fsize={bytes}:")]);
    assert!(prlimit.status().unwrap().success());
}

#[test]
fn a_full_disk_is_tried_again_and_leaves_no_torn_line() {
    let case = Case::with_gpus();
    let mut command = Command::new("env");
    // Else a file that is too large kills its writer.
    command.args(["--default-signal", "--ignore-signal=XFSZ"]);
    command.arg(program("monitor-log"));
    command.args("record --out gpu.csv --interval 20ms --nvml driver/libnvidia-ml.so.1".split(' '));
    command.current_dir(case.path("")).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let rows = || {
        if case.path("gpu.csv").exists() {
            case.read("gpu.csv").lines().count()
        } else {
            0
        }
    };
    for _ in 0..2 {
        let before = rows();
        wait_until(|| rows() > before + 3);
        // A part of a row fits.
        let length = case.read("gpu.csv").len();
        limit_files(child.id(), &(length + 30).to_string());
        sleep(A_WHILE);
        limit_files(child.id(), "unlimited");
    }
    let before = rows();
    wait_until(|| rows() > before + 3);
    kill("TERM", child.id());
    child.wait().unwrap();
    let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert_eq!(case.rows("gpu.csv").len(), case.samples("gpu.csv").len());
    assert_eq!(
        stderr.matches("trying again with each sample").count(),
        2,
        "{stderr}"
    );
    let (_, rest) = stderr
        .split_once("could not be written all the time: ")
        .unwrap();
    let lost = rest.split(' ').next().unwrap().parse::<u64>();
    assert!(lost.unwrap() > 10, "{stderr}");
}
