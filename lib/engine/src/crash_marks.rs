//! Marks of the batches that a process had at hand when it crashed.
//!
//! A handler of the signals of crashes writes them, so that a process that is killed leaves none: a scheduler, a user and a loss of power
//! choose their moment without a look at the batch.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::{fs, io, mem, ptr};

use libc::{SA_ONSTACK, SA_SIGINFO, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, siginfo_t};
use plmkit_contract::Provenance;
use rustix::fs::{Mode, OFlags};

/// A batch is given up after so many crashes.
const MAX_CRASHES: usize = 2;
/// The code of a signal that a process sends to its own thread, as `abort` does.
const SI_TKILL: c_int = -6;
/// What the kernel sends for an instruction that fails.
const FAULTS: [c_int; 4] = [SIGSEGV, SIGBUS, SIGILL, SIGFPE];
/// The most bytes of a line: a digest and its name, a space, a number and the end.
const LINE: usize = 9 + 32 + 1 + 20 + 1;

/// The marks of a run. While they exist, a crash of this process adds to them. A process has those of one run at a time.
pub(crate) struct CrashMarks {
    /// The batches that have crashed too many processes.
    pub(crate) given_up: Vec<u64>,
}

/// What the handler writes, and where.
struct AtHand {
    path: CString,
    /// A digest of the work, whose batches are numbered.
    work: String,
    batches: Vec<u64>,
    /// The batches that an earlier process had at hand when it crashed.
    suspects: Vec<u64>,
}

static AT_HAND: RwLock<Option<AtHand>> = RwLock::new(None);
/// The handlers of faults before this one, the standard library's for a stack that overflows among them.
static BEFORE: OnceLock<Vec<libc::sigaction>> = OnceLock::new();
static IS_MARKED: AtomicBool = AtomicBool::new(false);

impl CrashMarks {
    /// Reads the marks of this work in the file at `path`, if there is one, and adds a line for each batch at hand when this process
    /// crashes.
    pub(crate) fn start(path: &Path, work: &Provenance) -> io::Result<Self> {
        let work = work.source();
        let mut crashes: BTreeMap<u64, usize> = BTreeMap::new();
        let lines = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            lines => lines?,
        };
        let lines = String::from_utf8_lossy(&lines);
        let marks = lines.lines().filter_map(|line| line.split_once(' '));
        for (_, batch) in marks.filter(|(found, _)| *found == work) {
            let batch = batch.parse().unwrap_or(u64::MAX);
            *crashes.entry(batch).or_default() += 1;
        }
        if BEFORE.get().is_none() {
            handle_crashes()?;
        }
        *at_hand() = Some(AtHand {
            path: CString::new(path.as_os_str().as_bytes())?,
            work,
            batches: Vec::new(),
            suspects: crashes.keys().copied().collect(),
        });
        crashes.retain(|_, crashes| *crashes >= MAX_CRASHES);
        Ok(Self {
            given_up: crashes.into_keys().collect(),
        })
    }
}

impl Drop for CrashMarks {
    fn drop(&mut self) {
        *at_hand() = None;
    }
}

/// Whether an earlier process crashed with this batch at hand, and perhaps another one.
pub(crate) fn is_suspect(batch: u64) -> bool {
    let at_hand = at_hand();
    let at_hand = at_hand.as_ref();
    at_hand.is_some_and(|at_hand| at_hand.suspects.contains(&batch))
}

/// From now on, a crash is one with this batch at hand.
pub(crate) fn begin(batch: u64) {
    if let Some(at_hand) = &mut *at_hand()
        && !at_hand.batches.contains(&batch)
    {
        at_hand.batches.push(batch);
    }
}

/// The batch is computed.
pub(crate) fn end(batch: u64) {
    if let Some(at_hand) = &mut *at_hand() {
        at_hand.batches.retain(|&other| other != batch);
    }
}

fn at_hand() -> RwLockWriteGuard<'static, Option<AtHand>> {
    AT_HAND.write().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line for each batch at hand. Allocates nothing, and waits for no other thread.
fn mark() {
    let Ok(at_hand) = AT_HAND.try_read() else {
        return;
    };
    let Some(AtHand {
        path,
        work,
        batches,
        ..
    }) = &*at_hand
    else {
        return;
    };
    if batches.is_empty() || IS_MARKED.swap(true, Ordering::SeqCst) {
        // A stack that overflows is a fault and then an abort.
        return;
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path.as_c_str(), flags, Mode::from_raw_mode(0o666)) else {
        return;
    };
    for batch in batches {
        let mut line = [0; LINE];
        let mut rest = &mut line[..];
        let _ = writeln!(rest, "{work} {batch}");
        let left = rest.len();
        let _ = rustix::io::write(&file, &line[..LINE - left]);
    }
}

/// Calls [`mark`] at every crash, which then ends the process as before.
fn handle_crashes() -> io::Result<()> {
    // What was registered before comes first: it ends a process whose memory is refused.
    let on_abort = |info: &siginfo_t| {
        if info.si_code == SI_TKILL {
            mark();
        }
    };
    // SAFETY: the handler uses only atomics and system calls.
    #[allow(unsafe_code)]
    unsafe { signal_hook_registry::register_sigaction(SIGABRT, on_abort) }?;
    let before = FAULTS.map(|signal| {
        // SAFETY: the structures are plain data, for which zeros are valid, and the handler has the type that SA_SIGINFO asks for. A
        // stack that overflowed has no room, so it runs on another.
        #[allow(unsafe_code)]
        unsafe {
            let [mut before, mut action]: [libc::sigaction; 2] = mem::zeroed();
            action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK;
            libc::sigaction(signal, ptr::null(), &raw mut before);
            // The handler needs what was before.
            (before, action)
        }
    });
    let _ = BEFORE.set(before.iter().map(|&(before, _)| before).collect());
    for (signal, (_, action)) in FAULTS.into_iter().zip(&before) {
        // SAFETY: see above.
        #[allow(unsafe_code)]
        if unsafe { libc::sigaction(signal, action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Marks the batches and returns to the instruction, which fails again and meets the handler of before. A signal that somebody sent is
/// no crash, and is raised again for that handler.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel gives a valid structure; `sigaction` and `raise` may be called in a handler.
    #[allow(unsafe_code)]
    unsafe {
        let is_sent = (*info).si_code <= 0;
        if !is_sent {
            mark();
        }
        let before = FAULTS.iter().position(|&fault| fault == signal);
        let before = before.and_then(|fault| BEFORE.get()?.get(fault));
        libc::sigaction(
            signal,
            before.map_or(ptr::null(), ptr::from_ref),
            ptr::null_mut(),
        );
        if is_sent {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_other_work_do_not_count() {
        let folder = tempfile::tempdir().expect("temp folder");
        let path = folder.path().join("crashes");
        let [own, other] = ["a", "b"].map(|input| Provenance::new("gpu-embed", vec![input.into()]));
        for (work, batches) in [(&own, &[3, 4][..]), (&other, &[5]), (&own, &[4])] {
            drop(CrashMarks::start(&path, work).expect("marks"));
            mark();
            let marks = CrashMarks::start(&path, work).expect("marks");
            for &batch in batches {
                begin(batch);
            }
            begin(9);
            end(9);
            IS_MARKED.store(false, Ordering::SeqCst);
            mark();
            mark();
            drop(marks);
        }
        let marks = CrashMarks::start(&path, &own).expect("marks");
        let suspects = [2, 3, 4, 5, 9].map(is_suspect);
        assert_eq!(suspects, [false, true, true, false, false]);
        assert_eq!(marks.given_up, [4]);
    }
}
