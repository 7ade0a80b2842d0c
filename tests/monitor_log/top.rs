//! `top` on a machine without a GPU, not on a terminal.

use std::process::Stdio;

use crate::case::{Case, assert_contains, text};

#[test]
fn there_is_a_line_for_the_host_and_for_each_run() {
    let case = Case::with_logs();
    std::fs::create_dir(case.path("empty")).unwrap();
    for (args, runs) in [
        ("top --events empty", 0),
        ("top --once --events empty", 0),
        ("top --once", 2),
        ("top --events events.jsonl", 2),
        ("top --events .", 2),
    ] {
        let output = case.run(args);
        let stdout = text(&output.stdout);
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(
            (output.status.code(), lines.len()),
            (Some(0), 1 + runs),
            "{stdout}"
        );
        let host = lines[0];
        assert!(
            host.starts_with("host  cpu ") && host.ends_with(" MiB"),
            "{stdout}"
        );
        if runs > 0 {
            // The second run has no times, so the time of the file counts for it.
            let running = "run b  cuda:0 -  running  22 %  batches 2/9  tokens/s 20  ";
            assert!(lines[1].starts_with(running), "{stdout}");
            let done = "run a  cuda:0 f16  done  100 %  batches 4/4  tokens/s 231  sequences/s 2.16  residues/s 227  queue full  idle 20 %  packing 93 %  left -";
            assert_eq!(lines[2], done);
        }
    }
}

#[test]
fn a_reader_that_has_left_is_no_failure() {
    let case = Case::new();
    let mut command = case.command("top --once --quiet");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_given_file_that_is_no_log_is_a_warning() {
    let case = Case::new();
    case.write("other.txt", "other");
    let (code, stderr) = case.code_and_stderr("top --once --events other.txt missing.jsonl");
    assert_eq!(code, 0, "{stderr}");
    assert_contains(&stderr, "warning: other.txt: not a run event log");
    assert_contains(&stderr, "warning: missing.jsonl: ");
}
