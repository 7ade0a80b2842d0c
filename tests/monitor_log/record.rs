//! `record` by itself, and what its log holds on a machine without a GPU.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::case::{Case, HEADER, kill, text};
use crate::common::assert_failed;

/// Columns that a GPU fills in: from `index` to `processes`.
const NO_GPU: &str = ",,,,,,,,,,,,,,";

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
    let rows = case.rows("gpu.csv");
    assert!(rows.len() > 3, "{rows:?}");
    for row in &rows {
        let (_, host) = row.split_once(NO_GPU).expect("no GPU columns");
        let memory: Vec<u64> = host
            .split(',')
            .skip(1)
            .map(|mib| mib.parse().unwrap())
            .collect();
        assert!(0 < memory[0] && memory[0] < memory[1], "{row}");
    }
    let cpu = |row: &String| row.split(',').nth(14).unwrap().parse::<f64>().ok();
    assert_eq!(cpu(&rows[0]), None, "there is no utilization at one moment");
    assert!(
        rows[1..]
            .iter()
            .filter_map(cpu)
            .all(|percent| (0.0..=100.0).contains(&percent))
    );
    assert!(rows[1..].iter().filter_map(cpu).count() > 0);
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
fn after_kill_9_there_are_only_full_lines() {
    let case = Case::new();
    let mut child = case
        .command("record --out gpu.csv --interval 10ms")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
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
        &format!("{HEADER}2026-01-31T12:00:00.000Z{NO_GPU}1.0,2,3\n2026-01-31T12:0"),
    );
    assert!(case.wrap("true").status().unwrap().success());
    let rows = case.rows("gpu.csv");
    assert_eq!(rows[0], format!("2026-01-31T12:00:00.000Z{NO_GPU}1.0,2,3"));
    assert!(
        rows.len() > 1 && rows[1..].iter().all(|row| row.split(',').count() == 17),
        "{rows:?}"
    );
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
    assert_failed(&output, 2, "expected a command: record, top, export or report");
}

#[test]
fn an_empty_command_is_a_usage_error_and_leaves_no_log() {
    let case = Case::new();
    let output = case.run("record --out gpu.csv --");
    assert_failed(&output, 2, "expected a command after --, found none");
    assert!(!case.path("gpu.csv").exists());
}
