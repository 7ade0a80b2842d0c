//! `record` by itself, and what its log holds on a machine without a GPU.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::case::{Case, HEADER, assert_contains, kill, text};
use crate::common::assert_failed;

/// Columns that a GPU fills in: from `index` to `dram_active`.
const NO_GPU: &str = ",,,,,,,,,,,,,,,,,,,,,,,,";

#[test]
fn without_a_driver_the_host_is_recorded_and_that_is_said_once() {
    let case = Case::new();
    let output = case.wrap("sleep 0.3").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(
        stderr.matches("no GPU to be seen, only the host").count(),
        1,
        "{stderr}"
    );
    assert!(
        case.rows("gpu.csv").iter().all(|row| row.contains(NO_GPU)),
        "no GPU columns"
    );
    let samples = case.samples("gpu.csv");
    assert!(samples.len() > 3, "{samples:?}");
    for sample in &samples {
        let (used, total) = (sample.host_mem_used_mib, sample.host_mem_total_mib);
        assert!(Some(0) < used && used < total, "{sample:?}");
        assert!(sample.host_disk_free_mib > Some(0), "{sample:?}");
    }
    let first = &samples[0];
    let rates = [
        first.host_cpu_util,
        first.host_disk_read_mib_s,
        first.host_disk_write_mib_s,
    ];
    assert_eq!(rates, [None; 3], "there is no rate at one moment");
    let cpu = || {
        samples[1..]
            .iter()
            .filter_map(|sample| sample.host_cpu_util)
    };
    assert!(cpu().all(|percent| (0.0..=100.0).contains(&percent)));
    assert!(cpu().count() > 0);
    let boot_times: Vec<_> = samples
        .iter()
        .map(|sample| sample.boot_time().unwrap())
        .collect();
    let (boot_id, first_s) = boot_times[0];
    assert!(boot_times.is_sorted() && boot_times.iter().all(|&(id, _)| id == boot_id));
    assert!(
        boot_times.last().unwrap().1 - first_s > 0.2,
        "{boot_times:?}"
    );
}

#[test]
fn quiet_means_quiet() {
    let output = Case::new().wrap("true").arg("--quiet").output().unwrap();
    assert!(
        output.status.success(),
        "an argument of the command is not ours"
    );
    let output = Case::new().run("--quiet record --out gpu.csv -- true");
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), "")
    );
}

#[test]
fn a_log_may_be_a_link_and_standard_output() {
    let case = Case::new();
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
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let case = Case::new();
        let mut child = case
            .command("record --out gpu.csv --interval 10ms")
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(300));
        kill(name, child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert!(case.rows("gpu.csv").len() > 5);
    }
}

#[test]
fn a_signal_costs_a_recording_nothing() {
    for (name, number) in [("QUIT", 3), ("TERM", 15)] {
        let case = Case::new();
        let mut child = case
            .command("record --out gpu.parquet --interval 10ms")
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(300));
        kill(name, child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert!(case.path("gpu.parquet").exists(), "{name}");
        assert!(!case.path("gpu.parquet.csv").exists(), "{name}");
    }
}

/// Records for a while, until `kill -9`.
fn kill_a_recording(case: &Case, out: &str) {
    let mut child = case
        .command(&format!("record --out {out} --interval 10ms"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn after_kill_9_there_are_only_full_lines() {
    let case = Case::new();
    kill_a_recording(&case, "gpu.csv");
    let rows = case.rows("gpu.csv");
    assert!(rows.len() > 5);
    assert!(
        rows.iter()
            .all(|row| row.split(',').count() == HEADER.split(',').count())
    );
}

#[test]
fn a_second_recording_is_appended_and_a_torn_line_cut_off() {
    let case = Case::new();
    case.write(
        "gpu.csv",
        &format!("{HEADER}2026-01-31T12:00:00.000Z,b,7.0{NO_GPU}1.0,2,3,,,\n2026-01-31T12:0"),
    );
    assert!(case.wrap("true").status().unwrap().success());
    let rows = case.rows("gpu.csv");
    let first = format!("2026-01-31T12:00:00.000Z,b,7.0{NO_GPU}1.0,2,3,,,");
    assert_eq!(rows[0], first);
    assert!(rows.len() > 1, "{rows:?}");
    assert_eq!(case.samples("gpu.csv").len(), rows.len());
}

#[test]
fn intervals_have_units() {
    let case = Case::new();
    for interval in ["1", "0s", "-1s", "25h", "fast"] {
        let output = case.run(&format!(
            "record --out gpu.csv --interval={interval} -- true"
        ));
        assert_eq!(output.status.code(), Some(2), "{interval}");
    }
    assert!(!case.path("gpu.csv").exists());
}

#[test]
fn a_program_without_a_command_is_a_usage_error() {
    let output = Case::new().command("--quiet").output().unwrap();
    assert_failed(
        &output,
        2,
        "expected a command: record, top, export or report",
    );
}

#[test]
fn an_empty_command_is_a_usage_error_and_leaves_no_log() {
    let case = Case::new();
    let output = case.run("record --out gpu.csv --");
    assert_failed(&output, 2, "expected a command after --, found none");
    assert!(!case.path("gpu.csv").exists());
}

#[test]
fn a_parquet_file_is_made_of_the_log_at_the_end_and_says_the_same() {
    let case = Case::with_gpus();
    let output = case.run("record --out gpu.parquet --interval 20ms -- sleep 0.2");
    assert!(output.status.success());
    let samples = case.samples("gpu.parquet");
    assert!(samples.len() >= 4, "{samples:?}");
    assert!(!case.path("gpu.parquet.csv").exists());
    let again = case.run("record --out gpu.parquet -- true");
    assert_failed(
        &again,
        73,
        "gpu.parquet: exists, and nothing can be added to a Parquet file",
    );
    assert_eq!(case.samples("gpu.parquet"), samples);
}

#[test]
fn what_a_killed_recording_left_of_a_parquet_file_is_gone_on_with() {
    let case = Case::new();
    kill_a_recording(&case, "gpu.parquet");
    assert!(!case.path("gpu.parquet").exists());
    let before = case.samples("gpu.parquet.csv");
    assert!(before.len() > 5);
    assert!(
        case.run("record --out gpu.parquet -- true")
            .status
            .success()
    );
    let samples = case.samples("gpu.parquet");
    assert_eq!(samples[..before.len()], before);
    assert!(samples.len() > before.len());
}

#[test]
fn a_library_that_cannot_be_loaded_is_named_and_the_host_is_recorded() {
    let case = Case::with_gpus();
    let output = case.run("record --out gpu.csv --nvml missing/libnvidia-ml.so.1 -- true");
    assert!(output.status.success());
    let stderr = text(&output.stderr);
    assert_contains(&stderr, "missing/libnvidia-ml.so.1");
    assert!(
        case.samples("gpu.csv")
            .iter()
            .all(|row| row.index.is_none())
    );
}
