//! Memory that the system refuses to this library, whose allocator is not the program's.

use plmkit_kit::{Exit, ExitingAllocator};

/// A refusal ends the program like a kill, with one line and [`Exit::Transient`]; saved work stays saved.
#[global_allocator]
static ALLOCATOR: ExitingAllocator = ExitingAllocator(end);

#[allow(unsafe_code)]
fn end(_: usize) -> ! {
    const LINE: &[u8] =
        b"gpu-embed: not enough memory: the library for GPUs was refused an allocation\n";
    // SAFETY: the line is valid memory, and nothing has to be cleaned up.
    unsafe {
        libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
        libc::_exit(Exit::Transient.code().into());
    }
}
