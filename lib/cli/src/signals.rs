//! Signals that ask a program to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plmkit_contract::Stop;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

/// The signals that ask a program to stop: SIGUSR1 is what SLURM jobs are warned by (`--signal`).
const STOPPING: [i32; 3] = [SIGINT, SIGTERM, SIGUSR1];

/// What arrived.
pub(crate) struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// The first stopping signal requests `stop`; a second one ends the process at once.
    pub(crate) fn install(stop: &Stop) -> io::Result<Self> {
        let received = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for signal in STOPPING {
            // In this order: the first signal finds `again` unset and sets it, the second finds it set.
            flag::register_conditional_default(signal, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&received), signal as usize)?;
            flag::register(signal, stop.flag())?;
        }
        Ok(Self { received })
    }

    /// Dies of the signal that was received, if there was one, so that the parent sees what happened.
    pub(crate) fn reraise(&self) {
        let signal = self.received.load(Ordering::Relaxed);
        if let Ok(signal @ 1..) = i32::try_from(signal) {
            // Returns only where the signal could not be raised; then the exit code has to do.
            let _ = emulate_default_handler(signal);
        }
    }
}
