//! The system's allocator, with an end for memory that it refuses.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator. Calls the function with the size of an allocation that is refused: without it, Rust would print several
/// lines and abort, and schedulers would retry the program forever. Code that can continue with less memory does not use it.
#[derive(Debug)]
pub struct ExitingAllocator(pub fn(usize) -> !);

impl ExitingAllocator {
    fn or_end(&self, memory: *mut u8, bytes: usize) -> *mut u8 {
        if memory.is_null() {
            (self.0)(bytes);
        }
        memory
    }
}

// SAFETY: the system's allocator keeps the contract.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for ExitingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, here and below.
        self.or_end(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        self.or_end(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        self.or_end(unsafe { System.realloc(old, layout, size) }, size)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}
