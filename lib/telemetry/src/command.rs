//! Runs a command: forwards signals to it and waits for its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use procfs::process::Process;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::{SignalOnly, WithOrigin};
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals that schedulers and people send to a job.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Signals that end a program without a command.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Forwards signals to a command.
///
/// A signal from the terminal (Ctrl-C) goes to the entire process group, so the command already has it. It is not sent
/// twice, because many programs stop their cleanup on the second. A signal that was ignored when this process started
/// (`nohup`) stays ignored by both.
pub struct Forwarder(SignalsInfo<WithOrigin>);

impl Forwarder {
    /// Catches signals from now on, for a command to come.
    pub fn install() -> io::Result<Self> {
        SignalsInfo::new(not_ignored(&FORWARDED).chain([SIGCHLD])).map(Self)
    }

    /// Waits for the end of `child`, and forwards signals meanwhile. The forwarder must be installed before `child` starts.
    pub fn wait(mut self, child: &Child) -> io::Result<ExitStatus> {
        let command = Pid::from_child(child);
        loop {
            for origin in self.0.wait() {
                if origin.signal == SIGCHLD || is_from_terminal(&origin) {
                    continue;
                }
                if let Some(signal) = Signal::from_named_raw(origin.signal) {
                    // Fails if the command has just ended.
                    let _ = kill_process(command, signal);
                }
            }
            // The child is reaped only here, so its process id cannot be reused while signals are sent. The first process of a
            // container has other children, too.
            while let Some((child, status)) = wait(WaitOptions::NOHANG)? {
                if child == command {
                    return Ok(ExitStatus::from_raw(status.as_raw()));
                }
            }
        }
    }
}

/// Waits for a signal that asks this process to end, and returns it.
pub fn wait_for_end() -> io::Result<i32> {
    let mut signals = SignalsInfo::<SignalOnly>::new(not_ignored(&ENDING))?;
    loop {
        if let Some(signal) = signals.wait().next() {
            return Ok(signal);
        }
    }
}

/// Whether the command has the signal already. When a terminal hangs up, the kernel tells only the session leader.
fn is_from_terminal(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Kernel) && origin.signal != SIGHUP
}

/// Returns the signals that were not ignored when this process started.
fn not_ignored(signals: &[i32]) -> impl Iterator<Item = i32> {
    let status = Process::myself().and_then(|own| own.status());
    let ignored = status.map_or(0, |status| status.sigign);
    let signals = signals.iter().copied();
    signals.filter(move |signal| ignored & (1 << (signal - 1)) == 0)
}
