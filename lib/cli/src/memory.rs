//! Handles memory that the system refuses.

use std::fmt;
use std::io::{self, Write};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use plmkit_kit::{Exit, ExitingAllocator, is_catching_panic};
use signal_hook::consts::SIGABRT;
use signal_hook::low_level;
use tracing::Level;

use crate::LogFormat;
use crate::log::line;

/// A refusal ends the process like a kill, with one line and [`Exit::Transient`]; saved work stays saved.
#[global_allocator]
static ALLOCATOR: ExitingAllocator = ExitingAllocator(end_refused);

fn end_refused(bytes: usize) -> ! {
    end(format_args!("an allocation of {bytes} bytes was refused"))
}

/// Lets glibc keep freed memory, up to 64 MiB, for the next allocations: pages that return to the system and come again are cleared
/// each time, a tenth of the CPU time of a program that makes blocks of some MiB and ends soon. Other C libraries go on as they are.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const MIB: libc::c_int = 1 << 20;
        // SAFETY: the calls set two numbers, and no other thread is there yet. 32 MiB is the most that glibc accepts.
        #[allow(unsafe_code)]
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 * MIB);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * MIB);
        }
    }
}

/// The text before and after the reason in the message. Made while there is memory.
static LINE: OnceLock<[String; 2]> = OnceLock::new();

/// Prepares the message of a refusal.
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

static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the process with [`Exit::Transient`] when a library (glibc, std) aborts without memory. The library has printed a message.
pub(crate) fn survive_aborts() -> io::Result<()> {
    let end = || {
        if ENDING.load(Ordering::SeqCst) || !is_available(1 << 20) {
            ENDING.store(true, Ordering::SeqCst);
            low_level::exit(Exit::Transient.code().into());
        }
    };
    // SAFETY: the handler uses only an atomic, `mmap`, `munmap` and `_exit`.
    #[allow(unsafe_code)]
    unsafe { low_level::register(SIGABRT, end) }.map(drop)
}

/// Whether the system has this many bytes of memory.
fn is_available(bytes: usize) -> bool {
    let (access, kind) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the memory is new and unused.
    #[allow(unsafe_code)]
    unsafe {
        let memory = libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0);
        memory != libc::MAP_FAILED && libc::munmap(memory, bytes) == 0
    }
}

/// Ends the process because memory was refused. Allocates nothing.
pub(crate) fn end(reason: fmt::Arguments<'_>) -> ! {
    if ENDING.swap(true, Ordering::SeqCst) {
        // Another thread writes the message and ends the process. The wait is limited, in case it is the same thread.
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(10));
        }
    } else {
        let mut buffer = [0; 512];
        let mut rest = &mut buffer[..];
        let [before, after] = LINE
            .get()
            .map_or(["", "\n"], |[before, after]| [before, after]);
        // A message that is too long is cut.
        let _ = write!(rest, "{before}{reason}{after}");
        let left = rest.len();
        write_last_line(&buffer[..buffer.len() - left]);
    }
    low_level::exit(Exit::Transient.code().into())
}

/// Writes a line to standard error, then redirects standard error to `/dev/null`: libraries in other threads lack memory too, and
/// would print more lines.
fn write_last_line(line: &[u8]) {
    // SAFETY: the line is valid memory; a failed call returns a negative descriptor.
    #[allow(unsafe_code)]
    unsafe {
        let copy = libc::dup(libc::STDERR_FILENO);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        let to = if copy >= 0 && libc::dup2(null, libc::STDERR_FILENO) >= 0 {
            copy
        } else {
            libc::STDERR_FILENO
        };
        libc::write(to, line.as_ptr().cast(), line.len());
    }
}

/// Finds the reason in the message of a panic for lack of memory. std and zstd panic where they cannot return an error.
pub(crate) fn refusal(panic: &str) -> Option<&'static str> {
    const WORDS: [&str; 6] = [
        "can't allocate memory",
        "std::bad_alloc",
        "failed to spawn thread",
        "failed to allocate an alternative stack",
        "failed to set up alternative stack guard page",
        "zstd returned null pointer",
    ];
    // A decoder's panic may quote its file anywhere but at the start.
    let only_start = is_catching_panic();
    let matches = |words: &&str| panic.starts_with(words) || (!only_start && panic.contains(words));
    WORDS.into_iter().find(matches)
}

#[cfg(test)]
mod tests {
    use plmkit_kit::catch_decoder_panic;

    use super::*;

    #[test]
    fn a_panic_for_lack_of_memory_is_recognised() {
        let thread = "failed to spawn thread: Os { code: 11, kind: WouldBlock }";
        let torch = "called `Result::unwrap()` on an `Err` value: Torch(\"can't allocate memory\")";
        let quoted = "no column 'failed to spawn thread'";
        let all =
            || [thread, torch, quoted, "index out of bounds"].map(|panic| refusal(panic).is_some());
        assert_eq!(all(), [true, true, true, false]);
        assert_eq!(catch_decoder_panic(all), Ok([true, false, false, false]));
    }

    #[test]
    fn available_memory_is_known() {
        assert!(is_available(1 << 20));
        assert!(!is_available(1 << 60));
    }
}
