//! `top` on a machine without a GPU, off a terminal.

use std::process::Stdio;

use crate::case::{Case, text};

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
fn json_has_the_columns_of_the_log_and_null_for_what_is_not_known() {
    let output = Case::new().run("top --json");
    let sample: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(sample["gpu_util"].is_null() && sample["index"].is_null());
    assert!(sample["host_mem_total_mib"].as_u64().unwrap() > 0);
    let columns = sample.as_object().unwrap().len();
    assert_eq!(columns, crate::case::HEADER.split(',').count());
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
