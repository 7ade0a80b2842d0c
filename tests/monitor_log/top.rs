//! `top` on a machine without a GPU, off a terminal.

use std::process::Stdio;

use crate::case::{Case, assert_contains, fixture, text};

#[test]
fn off_a_terminal_there_is_one_line_for_the_host_with_or_without_once() {
    for args in ["top", "top --once"] {
        let output = Case::new().run(args);
        let stdout = text(&output.stdout);
        assert_eq!(
            (output.status.code(), stdout.lines().count()),
            (Some(0), 1),
            "{stdout}"
        );
        assert!(
            stdout.starts_with("host  cpu ") && stdout.ends_with(" MiB\n"),
            "{stdout}"
        );
    }
}

#[test]
fn a_reader_that_has_left_is_no_failure() {
    let mut child = Case::new()
        .command("top --once --quiet")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn each_run_has_a_line_of_its_own() {
    let case = Case::new();
    std::fs::copy(fixture("events.jsonl"), case.path("events.jsonl")).unwrap();
    for args in ["top --once", "top --events events.jsonl", "top --events ."] {
        let stdout = text(&case.run(args).stdout);
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{stdout}");
        // The second run does not say when it was: its log was written just now.
        assert!(
            lines[1].starts_with("run b  cuda:0 -  running  22 %  batches 2/9  tokens/s 20  "),
            "{stdout}"
        );
        assert_eq!(
            lines[2],
            "run a  cuda:0 f16  done  100 %  batches 4/4  tokens/s 231  residues/s 227  queue full  packing 93 %  left -"
        );
    }
}

#[test]
fn what_is_named_and_is_no_log_is_said_and_no_failure() {
    let case = Case::new();
    case.write("other.txt", "other");
    let output = case.run("top --once --events other.txt missing.jsonl");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_contains(&stderr, "warning: other.txt: not a run event log");
    assert_contains(&stderr, "warning: missing.jsonl: ");
}
