//! Standing in for a command that is run: its signals, its end.

use std::io;
use std::process::{Child, ExitStatus};

use procfs::process::Process;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::{SignalOnly, WithOrigin};
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// What schedulers and people send to a job.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// What ends a program that runs no command.
const ENDING: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Forwards signals to a command.
///
/// A signal that the terminal sends (Ctrl-C) goes to the whole process group, so the command has it already:
/// it is not sent twice, since many programs give up cleaning up on the second. A signal that was ignored when
/// this process started (`nohup`) stays ignored, for both.
pub struct Forwarder(SignalsInfo<WithOrigin>);

impl Forwarder {
    /// From now on signals wait for a command instead of acting on this process.
    pub fn install() -> io::Result<Self> {
        SignalsInfo::new(heeded(&FORWARDED).into_iter().chain([SIGCHLD])).map(Self)
    }

    /// Waits for the end of `child`, which was started after the forwarder, and forwards meanwhile.
    pub fn wait(mut self, mut child: Child) -> io::Result<ExitStatus> {
        loop {
            for origin in self.0.wait() {
                if origin.signal != SIGCHLD && !from_terminal(&origin) {
                    send(&child, origin.signal);
                }
            }
            // Only here is the child reaped: its process id cannot be another's while signals are sent.
            if let Some(status) = child.try_wait()? {
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

/// Dies of `signal`, so that the parent sees what happened. Returns only where that cannot be done.
pub fn die_of(signal: i32) {
    // The command has left its core file, if it was to leave one; ours would overwrite it.
    let _ = setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    );
    let _ = emulate_default_handler(signal);
}

fn from_terminal(origin: &Origin) -> bool {
    matches!(origin.cause, Cause::Kernel)
}

fn send(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some((pid, signal)) = pid.zip(Signal::from_named_raw(signal)) {
        // A child that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
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
