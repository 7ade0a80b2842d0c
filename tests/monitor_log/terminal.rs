//! Real terminals for programs, read by an emulator.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::termios::{Termios, tcgetattr, tcsetwinsize};

use crate::case::{Case, wait_for, wait_until};
pub(crate) use crate::common::pty::pair;
use crate::common::pty::size;

/// Starts a program of `case` on the terminal `device`, which tells it of a new size or a hang-up.
pub(crate) fn spawn(case: &Case, program: &Command, device: &OwnedFd) -> Child {
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait"])
        .arg(program.get_program());
    command.args(program.get_args()).current_dir(case.path(""));
    command.env_remove("NO_COLOR");
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let end = || device.try_clone().unwrap();
    command
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap()
}

/// Returns the program in a shell that outlives it a little. When the leader of a session ends, the kernel discards unread
/// output of the terminal.
fn outlived(program: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; code=$?; sleep 0.5; exit $code"]);
    shell.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell
}

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    controller: File,
    /// Open, so that output can be read after the end of the program.
    device: OwnedFd,
    before: Termios,
    emulator: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    pub(crate) fn start(case: &Case, args: &str, rows: u16, columns: u16) -> Self {
        Self::run(case, &case.command(args), rows, columns)
    }

    pub(crate) fn run(case: &Case, program: &Command, rows: u16, columns: u16) -> Self {
        let (controller, device) = pair(rows, columns);
        let before = tcgetattr(&device).unwrap();
        let child = spawn(case, &outlived(program), &device);
        let emulator = vt100::Parser::new(cells(rows), cells(columns), 0);
        let emulator = Arc::new(Mutex::new(emulator));
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

    /// Whether the program draws on the alternate screen.
    pub(crate) fn is_alternate(&self) -> bool {
        self.emulator.lock().unwrap().screen().alternate_screen()
    }

    /// Whether a cell has another color than that of the terminal.
    pub(crate) fn is_colored(&self) -> bool {
        let emulator = self.emulator.lock().unwrap();
        let (rows, columns) = emulator.screen().size();
        let mut places =
            (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        places.any(|(row, column)| {
            let cell = emulator.screen().cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    pub(crate) fn text(&self) -> String {
        self.emulator.lock().unwrap().screen().contents()
    }

    /// Waits until the screen has all parts, and returns it.
    pub(crate) fn wait_for(&self, parts: &[&str]) -> String {
        wait_for(|| {
            let text = self.text();
            if parts.iter().all(|part| text.contains(part)) {
                return Ok(text);
            }
            Err(format!("expected {parts:?} on\n{text}"))
        })
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let mut emulator = self.emulator.lock().unwrap();
        emulator.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.controller, size(rows, columns)).unwrap();
    }

    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.controller.write_all(keys).unwrap();
    }

    /// Waits for the end of the program, and checks that the terminal is restored.
    pub(crate) fn end(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        wait_until(|| !self.is_alternate());
        assert!(!self.emulator.lock().unwrap().screen().hide_cursor());
        let after = tcgetattr(&self.device).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status
    }

    /// Returns the process id of the program, in the shell.
    pub(crate) fn pid(&self) -> u32 {
        let children = format!("/proc/{0}/task/{0}/children", self.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        children.trim().parse().unwrap()
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("some cells")
}
