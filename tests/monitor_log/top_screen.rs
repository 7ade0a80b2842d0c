//! `top` on a terminal: a real one for the program, read by an emulator.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::case::{Case, fixture, kill, wait_within};
use crate::terminal::{Terminal, pair, spawn};

/// Four GPUs and a run at work.
fn busy() -> Case {
    let case = Case::with_gpus();
    let log = std::fs::read_to_string(fixture("events.jsonl")).unwrap();
    let now = plmkit_logs::Timestamp::now().to_string();
    let begun: String = log.split_inclusive('\n').take(3).collect();
    case.write(
        "run.jsonl",
        &begun.replace("2026-01-31T12:00:06.000Z", &now),
    );
    case
}

#[test]
fn gpus_bars_processes_and_runs_are_on_an_ordinary_screen() {
    let case = busy();
    let mut terminal = Terminal::start(&case, "top --interval 50ms", 24, 80);
    let text = terminal.wait_for(&["gpu 3 ", "100 %", "running"]);
    for part in [
        "monitor-log top",
        "4 GPUs",
        "host   cpu",
        "gpu 0  Fake, 0               61 C  251/300 W  1980 MHz  sw_power_cap+hw_slowdown",
        " 97 %",
        " 10.0/80.0 GiB",
        "gpu 1  Fake, 1 ",
        "gpu 2  Fake, 2                - C    -/- W     - MHz",
        "     4711    0       5.0 ",
        "cuda:0 f16 running",
        "batch 2/4",
        "1 halved",
    ] {
        assert!(text.contains(part), "expected {part} on\n{text}");
    }
    assert!(
        text.contains('█') && text.contains('▇'),
        "bars and history: {text}"
    );
    assert!(
        terminal
            .emulator
            .lock()
            .unwrap()
            .screen()
            .alternate_screen()
    );
    terminal.press(b"q");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn it_grows_and_shrinks_with_the_terminal() {
    let case = busy();
    let mut terminal = Terminal::start(&case, "top --interval 50ms", 24, 80);
    terminal.wait_for(&["gpu 3 ", "running", "MHz"]);
    terminal.resize(8, 60);
    let start = Instant::now();
    while terminal.text().lines().count() > 8 || !terminal.text().contains("gpu 3 ") {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{}",
            terminal.text()
        );
        sleep(Duration::from_millis(20));
    }
    terminal.wait_for(&["gpu 0  util ", "runs"]);
    terminal.resize(50, 140);
    terminal.wait_for(&["Fake, 3", "residues/s", "command"]);
    terminal.press(b"\x1b");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_run_that_begins_later_appears_and_ctrl_c_ends() {
    let case = Case::new();
    let mut terminal = Terminal::start(&case, "top --interval 50ms --events .", 24, 80);
    terminal.wait_for(&["no GPU", "host   cpu"]);
    case.write(
        "late.jsonl",
        "{\"type\":\"run\",\"run\":\"late\",\"device\":\"cpu\"}\n",
    );
    terminal.wait_for(&["late ", "running"]);
    terminal.press(b"\x03");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_left_as_it_was() {
    let case = busy();
    let terminal = Terminal::start(&case, "top --interval 50ms", 24, 80);
    terminal.wait_for(&["gpu 3 ", "running"]);
    kill("TERM", terminal.pid());
    // As the shell says it.
    assert_eq!(terminal.end().code(), Some(143));
}

/// Reads what the program draws until it has drawn `what`.
fn drawn(controller: OwnedFd, what: &str) -> File {
    let mut written = File::from(controller);
    let mut emulator = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
    let mut bytes = [0; 4096];
    while !emulator.screen().contents().contains(what) {
        let count = written.read(&mut bytes).unwrap();
        emulator.process(&bytes[..count]);
    }
    written
}

/// Who runs it under `nohup` is not told that the terminal is gone.
#[test]
fn it_ends_when_its_terminal_goes_away_told_or_not() {
    for signals in ["--default-signal", "--ignore-signal=HUP"] {
        let case = busy();
        let (controller, device) = pair(24, 80);
        let plain = case.command("top --interval 50ms");
        let mut program = std::process::Command::new(plain.get_program());
        program.arg(signals).args(plain.get_args().skip(1));
        for (name, value) in plain.get_envs() {
            program.env(name, value.unwrap_or_default());
        }
        let mut child = spawn(&case, &program, &device);
        drop(drawn(controller, "gpu 3 "));
        let status = wait_within(&mut child, Duration::from_secs(5));
        assert_eq!(
            status.and_then(|status| status.signal()),
            Some(1),
            "{signals}"
        );
    }
}
