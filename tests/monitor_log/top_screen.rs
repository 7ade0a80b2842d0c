//! `top` on a real terminal, read by an emulator.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::case::{Case, assert_contains, events_of_now, kill, wait_until, wait_within};
use crate::terminal::{Terminal, pair, spawn};

/// A case with four GPUs and a running run.
fn busy() -> Case {
    let case = Case::with_gpus();
    case.write("run.jsonl", &events_of_now(3, &["06.000"]));
    case
}

const TOP: &str = "top --interval 50ms";

#[test]
fn gpus_processes_and_runs_are_on_an_ordinary_screen() {
    let case = busy();
    let mut terminal = Terminal::start(&case, TOP, 24, 80);
    let text = terminal.wait_for(&["3  100 %", "running"]);
    for part in [
        " UTC  ",
        "0   97 %  12 %  61°C  251/300 W  slow  10240/81920 MiB",
        "lost",
        "0    4711  5120 MiB ",
        "gpu 0 ",
        "  batch 2/4  fill 92 %, least 84 %, 1 below 85 %  wait 60.12 ms, most 120",
        "q quit",
    ] {
        assert_contains(&text, part);
    }
    assert!(terminal.is_alternate());
    terminal.press(b"q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn it_grows_and_shrinks_with_the_terminal() {
    let case = busy();
    let mut terminal = Terminal::start(&case, TOP, 24, 80);
    terminal.wait_for(&["3  100 %", "running", "batch 2/4"]);
    terminal.resize(8, 40);
    wait_until(|| {
        let text = terminal.text();
        text.lines().count() <= 8 && text.contains("3  100 %")
    });
    terminal.wait_for(&["0   97 %  12 %  61°C  251/300 W  slow", "lost", "running"]);
    terminal.resize(50, 140);
    terminal.wait_for(&["queue full", "command"]);
    terminal.press(b"\x1b");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_run_that_begins_later_appears_and_ctrl_c_ends_the_view() {
    let case = Case::new();
    let mut terminal = Terminal::start(&case, "top --interval 50ms --events .", 24, 80);
    terminal.wait_for(&["no GPU"]);
    let run = "{\"type\":\"run\",\"run\":\"late\",\"device\":\"cpu\"}\n";
    case.write("late.jsonl", run);
    terminal.wait_for(&["late ", "running"]);
    terminal.press(b"\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_signal_ends_the_view_and_the_terminal_is_restored() {
    let case = busy();
    let terminal = Terminal::start(&case, TOP, 24, 80);
    terminal.wait_for(&["3  100 %", "running"]);
    kill("TERM", terminal.pid());
    // The exit code of the shell.
    assert_eq!(terminal.end().code(), Some(143));
}

/// Reads the output of the program until the screen has `part`.
fn wait_for_screen(controller: OwnedFd, part: &str) -> File {
    let mut written = File::from(controller);
    let mut emulator = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
    let mut bytes = [0; 4096];
    while !emulator.screen().contents().contains(part) {
        let count = written.read(&mut bytes).unwrap();
        emulator.process(&bytes[..count]);
    }
    written
}

#[test]
fn it_ends_when_its_terminal_is_lost() {
    let case = busy();
    let (controller, device) = pair(24, 80);
    let mut child = spawn(&case, &case.command(TOP), &device);
    drop(wait_for_screen(controller, "3  100 %"));
    let status = wait_within(&mut child, Duration::from_secs(5)).expect("it ends");
    assert_eq!(status.signal(), Some(1));
}
