//! Memory that the system refuses.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::io::{self, Write};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use plmkit_contract::{Exit, is_guarded};
use signal_hook::consts::SIGABRT;
use signal_hook::low_level;
use tracing::Level;

use crate::LogFormat;
use crate::log::line;

/// Rust's own way to end a program whose memory is refused is SIGABRT after several lines, and schedulers try such a program
/// again on the same machine for ever.
#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// The system's allocator. A refusal ends the program as a kill would, with one line and [`Exit::Transient`]: what is saved stays
/// saved. No caller of Rust's allocator could do better; what can, in smaller batches, takes its memory by other ways.
struct Refusing;

// SAFETY: all is done by the system's allocator, which keeps the contract.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on, here and below.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(old, layout, size) }, size)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

fn given(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        end(format_args!("an allocation of {bytes} bytes was refused"));
    }
    memory
}

/// What stands before and behind the reason in the line. Made while there is memory.
static LINE: OnceLock<[String; 2]> = OnceLock::new();

/// Prepares the line of a refusal, in the name of `tool` and in `format`.
pub(crate) fn prepare_refusal_line(tool: &str, format: LogFormat) {
    const REASON: &str = "REASON";
    let line = line(
        tool,
        format,
        Level::ERROR,
        &format!("not enough memory: {REASON}"),
    );
    let parts = line.split_once(REASON).unwrap_or_default();
    let _ = LINE.set([parts.0.to_owned(), parts.1.to_owned()]);
}

/// Leaves the message of a refusal to the process that started this one: the exit code is enough.
pub fn silence_refusals() {
    SILENT.store(true, Ordering::Relaxed);
}

static SILENT: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);

/// From now on a library that aborts while there is no memory ends the program with the same exit code: glibc and std do, which have
/// said why in a line of their own.
pub(crate) fn survive_aborts() -> io::Result<()> {
    let end = || {
        if ENDING.load(Ordering::SeqCst) || !is_there(1 << 20) {
            ENDING.store(true, Ordering::SeqCst);
            low_level::exit(Exit::Transient.code().into());
        }
    };
    // SAFETY: an atomic, `mmap`, `munmap` and `_exit` are all that it needs; a signal handler may use them.
    #[allow(unsafe_code)]
    unsafe { low_level::register(SIGABRT, end) }.map(drop)
}

/// Whether the system has so many bytes.
fn is_there(bytes: usize) -> bool {
    let (access, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the memory is new, and nobody else has it when it is given back.
    #[allow(unsafe_code)]
    unsafe {
        let memory = libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0);
        memory != libc::MAP_FAILED && libc::munmap(memory, bytes) == 0
    }
}

/// Ends the program because memory was refused, without taking any.
pub(crate) fn end(why: fmt::Arguments<'_>) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread has begun to say it. The wait is for that one; a thread that comes by twice is not to wait for itself.
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(10));
        }
    } else if !SILENT.load(Ordering::Relaxed) {
        let mut buffer = [0; 512];
        let mut rest = &mut buffer[..];
        let [before, behind] = LINE
            .get()
            .map_or(["", "\n"], |[before, behind]| [before, behind]);
        // What does not fit is cut off.
        let _ = write!(rest, "{before}{why}{behind}");
        let left = rest.len();
        write_last_line(&buffer[..buffer.len() - left]);
    }
    low_level::exit(Exit::Transient.code().into())
}

/// Writes a line on standard error, and lets no library of another thread, for which there is no memory either, write one after it.
fn write_last_line(line: &[u8]) {
    // SAFETY: the line is there, and descriptors are numbers; where one cannot be had, nothing has happened.
    #[allow(unsafe_code)]
    unsafe {
        let own = libc::dup(libc::STDERR_FILENO);
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        let to = if own >= 0 && libc::dup2(nowhere, libc::STDERR_FILENO) >= 0 {
            own
        } else {
            libc::STDERR_FILENO
        };
        libc::write(to, line.as_ptr().cast(), line.len());
    }
}

/// What a panic that came of a refusal says of it: std, tch and zstd panic where they return no error.
pub(crate) fn refusal(panic: &str) -> Option<&'static str> {
    const WORDS: [&str; 6] = [
        "can't allocate memory",
        "std::bad_alloc",
        "failed to spawn thread",
        "failed to allocate an alternative stack",
        "failed to set up alternative stack guard page",
        "zstd returned null pointer",
    ];
    // A decoder's panic may quote its file.
    let begins = is_guarded();
    let says = |words: &&str| panic.starts_with(words) || !begins && panic.contains(words);
    WORDS.into_iter().find(says)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::guarded;

    use super::*;

    #[test]
    fn a_panic_for_want_of_memory_is_told_from_others() {
        let thread = "failed to spawn thread: Os { code: 11, kind: WouldBlock }";
        let torch = "called `Result::unwrap()` on an `Err` value: Torch(\"can't allocate memory\")";
        let quoted = "no column 'failed to spawn thread'";
        let all =
            || [thread, torch, quoted, "index out of bounds"].map(|panic| refusal(panic).is_some());
        assert_eq!(all(), [true, true, true, false]);
        assert_eq!(guarded(all), Ok([true, false, false, false]));
    }

    #[test]
    fn what_is_not_there_is_seen() {
        assert!(is_there(1 << 20));
        assert!(!is_there(1 << 60));
    }
}
