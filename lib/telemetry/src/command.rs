//! Standing in for a command that is run: its signals, its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use procfs::process::Process;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::{SignalOnly, WithOrigin};
use signal_hook::low_level::siginfo::{Cause, Origin};

/// What schedulers and people send to a job.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What ends a program that runs no command.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Forwards signals to a command.
///
/// A signal that the terminal sends (Ctrl-C) goes to the whole process group, so the command has it already:
/// it is not sent twice, since many programs give up cleaning up on the second. A signal that was ignored when
/// this process started (`nohup`) stays ignored, for both.
pub struct Forwarder(SignalsInfo<WithOrigin>);

impl Forwarder {
    /// From now on signals wait for a command instead of acting on this process, and what the command leaves running in the
    /// background becomes a child of this process: it can still be seen to be the command's.
    pub fn install() -> io::Result<Self> {
        // A kernel that knows no such thing gives them to another process, as ever.
        let _ = set_child_subreaper(Some(getpid()));
        SignalsInfo::new(heeded(&FORWARDED).into_iter().chain([SIGCHLD])).map(Self)
    }

    /// Waits for the end of `child`, which was started after the forwarder, and forwards meanwhile.
    pub fn wait(mut self, child: &Child) -> io::Result<ExitStatus> {
        let command = Pid::from_child(child);
        loop {
            for origin in self.0.wait() {
                if origin.signal != SIGCHLD && !from_terminal(&origin) {
                    send(command, origin.signal);
                }
            }
            // Only here is the child reaped: its process id cannot be another's while signals are sent.
            if let Some(status) = reap(command)? {
                return Ok(status);
            }
        }
    }
}

/// Waits for a signal that asks this process to end, and returns it.
pub fn wait_for_end() -> io::Result<i32> {
    let mut signals = SignalsInfo::<SignalOnly>::new(heeded(&ENDING))?;
    loop {
        if let Some(signal) = signals.wait().next() {
            return Ok(signal);
        }
    }
}

/// Whether the command has the signal already. Of a terminal that hangs up the kernel tells the session's leader only.
fn from_terminal(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Kernel) && origin.signal != SIGHUP
}

fn send(command: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // One that has just ended needs no signal.
        let _ = kill_process(command, signal);
    }
}

/// Reaps all children that have ended; how `command` did, if it is one of them.
fn reap(command: Pid) -> io::Result<Option<ExitStatus>> {
    while let Some((child, status)) = wait(WaitOptions::NOHANG)? {
        if child == command {
            return Ok(Some(ExitStatus::from_raw(status.as_raw())));
        }
    }
    Ok(None)
}

/// Those of `signals` that were not ignored when this process started.
fn heeded(signals: &[i32]) -> Vec<i32> {
    let ignored = Process::myself()
        .and_then(|own| own.status())
        .map_or(0, |status| status.sigign);
    signals
        .iter()
        .copied()
        .filter(|signal| ignored & (1 << (signal - 1)) == 0)
        .collect()
}
