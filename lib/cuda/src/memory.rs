//! Memory that the system refuses to this library.

use std::alloc::{GlobalAlloc, Layout, System};

use plmkit_contract::Exit;

/// The program's allocator is not this library's, and Rust would abort, which schedulers would retry forever.
#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// The system's allocator. A refusal ends the program like a kill, with one line and [`Exit::Transient`]; saved work stays saved.
struct Refusing;

// SAFETY: the system's allocator keeps the contract.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, here and below.
        end_if_null(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        end_if_null(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        end_if_null(unsafe { System.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}

#[allow(unsafe_code)]
fn end_if_null(memory: *mut u8) -> *mut u8 {
    const LINE: &[u8] =
        b"gpu-embed: not enough memory: the library for GPUs was refused an allocation\n";
    if memory.is_null() {
        // SAFETY: the line is valid memory, and nothing has to be cleaned up.
        unsafe {
            libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
            libc::_exit(Exit::Transient.code().into());
        }
    }
    memory
}
