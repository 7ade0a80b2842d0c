//! Signals: requests to stop, limits, and dying of a signal.

use std::io;
use std::iter;
use std::mem;
use std::process;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use plmkit_kit::Stop;
use rustix::process::{Resource, Rlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{self, emulate_default_handler};

/// The signals that request a stop. SIGHUP: the terminal was closed. SIGUSR1: the warning of SLURM jobs (`--signal`).
const STOPPING: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1];

/// Installs the handlers. The first signal requests `stop`. A second one ends the process at once; so does the first during an
/// interruptible call. SIGHUP does not count as second, because the kernel and the shell both send it when a terminal closes. An
/// ignored SIGHUP (`nohup`) stays ignored. Returns where the last signal will be; none is 0.
pub(crate) fn install(stop: &Stop) -> io::Result<Arc<AtomicUsize>> {
    let received = Arc::new(AtomicUsize::new(0));
    let again = Arc::new(AtomicBool::new(false));
    for signal in STOPPING {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        let again = (signal != SIGHUP).then(|| Arc::clone(&again));
        // Handlers run in this order: the first signal finds `again` unset and sets it, the second finds it set.
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
    Ok(received)
}

/// Dies of `signal`, so that the parent sees it. If that is impossible, returns the equivalent exit code.
pub fn die_of(signal: i32) -> u8 {
    // The kernel does not let a signal end the first process of a container: `raise` returns, and the C library then crashes.
    if !is_first_process() {
        // A core file would overwrite that of the command which this process stands for.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = setrlimit(Resource::Core, none);
        let _ = emulate_default_handler(signal);
    }
    code_of(signal)
}

/// Ends the process at once, without destructors: a destructor of a hanging driver would block forever.
pub fn end_at_once(code: u8) -> ! {
    low_level::exit(code.into())
}

/// Returns the exit code of shells for a signal (POSIX, Shell & Utilities 2.8.2).
fn code_of(signal: i32) -> u8 {
    128_u8.saturating_add(u8::try_from(signal).unwrap_or_default())
}

pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a valid `sigaction`, and the call only writes to it.
    #[allow(unsafe_code)]
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Makes writes beyond the limit on file sizes (`ulimit -f`) fail with an error. Unhandled, SIGXFSZ would end the process without a
/// message. It is not ignored, because started commands would inherit that.
pub(crate) fn handle_file_size_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

fn is_first_process() -> bool {
    process::id() == 1
}
