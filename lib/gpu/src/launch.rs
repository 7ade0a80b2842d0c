//! One launch of a kernel: what the driver, or a test's emulator, is told.

use std::ffi::c_void;

use crate::source::Kernel;

/// A value passed to a kernel, at the address of its first byte.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
struct Argument([u8; 8]);

/// The most arguments that a kernel has.
const ARGUMENTS: usize = 11;

/// A kernel, how many threads run it, and its arguments in the order of its declaration.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Kernel,
    /// Blocks along x and y.
    pub(crate) grid: (u32, u32),
    /// Threads of a block.
    pub(crate) threads: u32,
    arguments: [Argument; ARGUMENTS],
    given: usize,
}

impl Launch {
    pub(crate) fn new(kernel: Kernel, grid: (u32, u32), threads: u32) -> Self {
        Self {
            kernel,
            grid,
            threads,
            arguments: [Argument::default(); ARGUMENTS],
            given: 0,
        }
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        self.arguments[self.given].0[..bytes.len()].copy_from_slice(bytes);
        self.given += 1;
        self
    }

    /// A pointer of the device.
    pub(crate) fn pointer<T>(self, pointer: *const T) -> Self {
        self.push(&(pointer.addr() as u64).to_ne_bytes())
    }

    /// An `unsigned`.
    pub(crate) fn count(self, value: u32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// An `int`.
    pub(crate) fn integer(self, value: i32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// A `float`.
    pub(crate) fn float(self, value: f32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// The address of each argument. Of those that were not given nobody asks.
    pub(crate) fn addresses(&mut self) -> [*mut c_void; ARGUMENTS] {
        self.arguments
            .each_mut()
            .map(|argument| (&raw mut argument.0).cast())
    }
}

/// How many tokens a block takes that has so many pieces of work in each: about four for each of its threads.
pub(crate) fn tokens_per_block(pieces: u32) -> u32 {
    (4 * THREADS / pieces).max(1)
}

/// Threads of a block, where its work does not say otherwise.
pub(crate) const THREADS: u32 = 256;
