//! `top` on a terminal: a real one for the program, read by an emulator.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::case::{Case, fixture, kill};

/// A program on a terminal of its own.
struct Terminal {
    child: Child,
    controller: File,
    /// Held, so that what the program wrote can be read when it has ended.
    device: OwnedFd,
    before: Termios,
    emulator: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(case: &Case, args: &str, rows: u16, columns: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let device = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        tcsetwinsize(&controller, size(rows, columns)).unwrap();
        let before = tcgetattr(&device).unwrap();

        let program = case.command(args);
        // The terminal controls the program: it is told when the size changes.
        let mut command = std::process::Command::new("setsid");
        command
            .args(["--ctty", "--wait"])
            .arg(program.get_program());
        command.args(program.get_args()).current_dir(case.path(""));
        for (name, value) in program.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        let end = || device.try_clone().unwrap();
        let child = command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();

        let emulator = Arc::new(Mutex::new(vt100::Parser::new(
            cells(rows),
            cells(columns),
            0,
        )));
        let mut written = File::from(controller.try_clone().unwrap());
        let fed = Arc::clone(&emulator);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = written.read(&mut bytes) {
                fed.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            child,
            controller: File::from(controller),
            device,
            before,
            emulator,
        }
    }

    fn text(&self) -> String {
        self.emulator.lock().unwrap().screen().contents()
    }

    /// Waits until the screen has all of these.
    fn wait_for(&self, parts: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            if parts.iter().all(|part| text.contains(part)) {
                return text;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "expected {parts:?} on\n{text}"
            );
            sleep(Duration::from_millis(20));
        }
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.emulator
            .lock()
            .unwrap()
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.controller, size(rows, columns)).unwrap();
    }

    fn press(&mut self, keys: &[u8]) {
        self.controller.write_all(keys).unwrap();
    }

    /// The program's end; the terminal is as it was before.
    fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        let start = Instant::now();
        while self.emulator.lock().unwrap().screen().alternate_screen() {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "still on the other screen"
            );
            sleep(Duration::from_millis(10));
        }
        assert!(!self.emulator.lock().unwrap().screen().hide_cursor());
        let after = tcgetattr(&self.device).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status
    }

    /// The program itself, below `setsid`.
    fn pid(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        // setsid forks only where it leads its process group; else it is the program by now.
        children.trim().parse().unwrap_or(self.child.id())
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("some cells")
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Four GPUs and a run at work.
fn busy() -> Case {
    let case = Case::with_gpus();
    let log = std::fs::read_to_string(fixture("events.jsonl")).unwrap();
    let now = plmkit_telemetry::Timestamp::now().to_string();
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
    let status = terminal.end();
    // setsid turns a signal's end into a code, where it is there.
    assert!(
        status.signal() == Some(15) || status.code() == Some(143),
        "{status:?}"
    );
}
