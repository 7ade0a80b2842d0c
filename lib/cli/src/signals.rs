//! Signals that ask a program to stop, and what a program dies of.

use std::io;
use std::iter;
use std::mem;
use std::process;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plmkit_contract::Stop;
use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::consts::{SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::low_level::{self, emulate_default_handler};
use tracing::Level;

use crate::log::line;
use crate::{Fault, Program};

/// The signals that ask a program to stop: SIGHUP says that the terminal is gone, SIGUSR1 is what SLURM jobs are warned by (`--signal`).
const STOPPING: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1];

/// What arrived.
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// The first stopping signal requests `stop`; a second one ends the process at once, and so does the first during an
    /// interruptible call. SIGHUP never is a second one: of a terminal that closes, the kernel and the shell both tell, and nobody
    /// insists. Where it is ignored (`nohup`) it stays so.
    pub(crate) fn install(stop: &Stop) -> io::Result<Self> {
        let received = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for signal in STOPPING {
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            let again = (signal != SIGHUP).then(|| Arc::clone(&again));
            // In this order: the first signal finds `again` unset and sets it, the second finds it set.
            for at_once in iter::once(stop.interruptible_flag()).chain(again.clone()) {
                if is_first_process() {
                    let code = i32::from(code_of(signal));
                    flag::register_conditional_shutdown(signal, code, at_once)?;
                } else {
                    flag::register_conditional_default(signal, at_once)?;
                }
            }
            if let Some(again) = again {
                flag::register(signal, again)?;
            }
            flag::register_usize(signal, Arc::clone(&received), signal as usize)?;
            flag::register(signal, stop.flag())?;
        }
        Ok(Self { received })
    }

    /// The signal that was received, if there was one.
    pub(crate) fn received(&self) -> Option<i32> {
        let signal = i32::try_from(self.received.load(Ordering::Relaxed)).ok();
        signal.filter(|&signal| signal > 0)
    }
}

/// Ends `program` with `fault` where a library aborts during an interruptible call of `stop`, in place of a death by SIGABRT without a
/// word, after which schedulers try again.
pub fn on_abort<P: Program>(program: &P, stop: &Stop, fault: &Fault) -> io::Result<()> {
    let line = line(
        P::NAME,
        program.common().log_format,
        Level::ERROR,
        fault.message(),
    );
    let (calling, code) = (stop.interruptible_flag(), fault.exit().code().into());
    let end = move || {
        if calling.load(Ordering::SeqCst) {
            let _ = rustix::io::write(io::stderr(), line.as_bytes());
            low_level::exit(code);
        }
    };
    // SAFETY: an atomic, `write` and `_exit` are all that it needs, which a signal handler may use.
    #[allow(unsafe_code)]
    unsafe { low_level::register(SIGABRT, end) }.map(drop)
}

/// Dies of `signal`, so that the parent sees what happened. Where that cannot be done it returns the exit code that says
/// the same.
pub fn die_of(signal: i32) -> u8 {
    // The kernel lets no signal end the first process of a container: what is raised there returns, and what the C library
    // does then looks like a crash.
    if !is_first_process() {
        // A command that we stand for has left its core file, if it was to leave one; ours would overwrite it.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        let _ = emulate_default_handler(signal);
    }
    code_of(signal)
}

/// Ends at once with an exit code. No destructor runs, of no library either: one of a driver that hangs would wait for ever.
pub fn end_at_once(code: u8) -> ! {
    low_level::exit(code.into())
}

/// As the shells have it (POSIX, Shell & Utilities 2.8.2).
fn code_of(signal: i32) -> u8 {
    128_u8.saturating_add(u8::try_from(signal).unwrap_or_default())
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: no action is given, and there is room for the one that is asked for, of which zeros are one.
    #[allow(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

fn is_first_process() -> bool {
    process::id() == 1
}
