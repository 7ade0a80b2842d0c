//! The description of a launch, for the driver and for the emulator of the tests.

use std::ffi::c_void;

use crate::GpuError;
use crate::launch_arguments::{at_most, check_pointer};
use crate::source::Kernel;

/// The bytes of a kernel argument.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
struct Argument([u8; 8]);

/// The most blocks along y.
const MAX_ACROSS: usize = 65_535;

/// The most arguments of a kernel.
const MAX_ARGUMENTS: usize = 11;

/// A kernel, its grid, and its arguments in the order of its declaration.
#[derive(Clone, Debug)]
pub struct Launch {
    pub(crate) kernel: Kernel,
    /// Blocks along x and y.
    pub(crate) grid: (u32, u32),
    /// Threads of a block.
    pub(crate) threads: u32,
    arguments: [Argument; MAX_ARGUMENTS],
    /// The number of arguments.
    count: usize,
}

impl Launch {
    pub(crate) fn new(kernel: Kernel, grid: (u32, u32), threads: u32) -> Self {
        Self {
            kernel,
            grid,
            threads,
            arguments: [Argument::default(); MAX_ARGUMENTS],
            count: 0,
        }
    }

    /// A launch for `pieces` pieces of a row, each a thread's, in blocks of `rows` rows.
    ///
    /// # Errors
    /// [`GpuError::Argument`] if a row is too wide for a grid.
    pub(crate) fn of_columns(
        kernel: Kernel,
        tokens: u32,
        pieces: u32,
        rows: u32,
    ) -> Result<Self, GpuError> {
        // Blocks have equal numbers of columns, in whole warps.
        let across = pieces.div_ceil(THREADS);
        at_most("blocks of channels", across as usize, MAX_ACROSS)?;
        let threads = pieces.div_ceil(across).next_multiple_of(32);
        Ok(Self::new(kernel, (tokens.div_ceil(rows), across), threads))
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        self.arguments[self.count].0[..bytes.len()].copy_from_slice(bytes);
        self.count += 1;
        self
    }

    /// Adds a device pointer, which is aligned to `alignment` bytes and not null.
    pub(crate) fn pointer<T>(
        self,
        name: &str,
        pointer: *const T,
        alignment: usize,
    ) -> Result<Self, GpuError> {
        check_pointer(name, pointer, alignment)?;
        Ok(self.address(pointer))
    }

    /// Adds a device pointer that the kernel does not use if it is null.
    pub(crate) fn address<T>(self, pointer: *const T) -> Self {
        self.push(&(pointer.addr() as u64).to_ne_bytes())
    }

    /// Adds an `unsigned`.
    pub(crate) fn count(self, value: u32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// Adds an `int`.
    pub(crate) fn integer(self, value: i32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// Adds a `float`.
    pub(crate) fn float(self, value: f32) -> Self {
        self.push(&value.to_ne_bytes())
    }

    /// Returns the address of each argument. The driver reads as many as the kernel declares.
    pub(crate) fn addresses(&mut self) -> [*mut c_void; MAX_ARGUMENTS] {
        self.arguments
            .each_mut()
            .map(|argument| (&raw mut argument.0).cast())
    }
}

/// Returns the tokens of a block if each token has this many pieces of work: about four pieces for each thread.
pub(crate) fn tokens_per_block(pieces: u32) -> u32 {
    (4 * THREADS / pieces).max(1)
}

/// The default number of threads in a block.
pub(crate) const THREADS: u32 = 256;
