//! What can go wrong on the way to a kernel's launch.

use crate::Architecture;

/// Why kernels could not be had, or one was not launched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library of CUDA is not where libraries are looked for.
    #[error("cannot load {reason}")]
    NoLibrary {
        /// Its name and what is wrong, in the loader's words.
        reason: String,
    },
    /// A library of CUDA lacks a function; it is from before CUDA 11.4.
    #[error("{library} has no {symbol}: expected that of CUDA 11.4 or newer")]
    NoSymbol {
        /// Its name.
        library: &'static str,
        /// The function.
        symbol: &'static str,
    },
    /// NVRTC knows no architecture as old as the device.
    #[error(
        "NVRTC compiles for no architecture up to {architecture}: the device is older than it supports"
    )]
    Unsupported {
        /// That of the device.
        architecture: Architecture,
    },
    /// The compiler refused the kernels.
    #[error("the kernels do not compile for {architecture}: {log}")]
    Compile {
        /// What for.
        architecture: Architecture,
        /// What NVRTC said.
        log: String,
    },
    /// NVRTC failed for a reason that is not in the kernels.
    #[error("NVRTC: {call} failed: {reason}")]
    Nvrtc {
        /// Its function.
        call: &'static str,
        /// Its own words.
        reason: String,
    },
    /// The driver refused a call, or reports what an earlier launch on the device did.
    #[error("CUDA driver: {call} failed: {reason}")]
    Driver {
        /// Its function.
        call: &'static str,
        /// The number of the error, a `CUresult`.
        code: u32,
        /// Its own words.
        reason: String,
    },
    /// Values have an address, unless there are none.
    #[error("{argument} is a null pointer")]
    Null {
        /// What the values are.
        argument: &'static str,
    },
    /// A value's address is a multiple of its size.
    #[error(
        "{argument}: expected an address that is a multiple of {alignment}, found {address:#x}"
    )]
    Misaligned {
        /// What the values are.
        argument: &'static str,
        /// Bytes.
        alignment: usize,
        /// The address.
        address: usize,
    },
    /// A kernel counts in 32 bits, and holds a row in the registers of a block.
    #[error("{quantity}: expected at most {limit}, found {found}")]
    TooLarge {
        /// What was counted.
        quantity: &'static str,
        /// The most that there may be.
        limit: usize,
        /// How many there are; `usize::MAX` where that has more digits.
        found: usize,
    },
    /// A shape has a condition.
    #[error("{quantity}: expected {expected}, found {found}")]
    Shape {
        /// What was counted.
        quantity: &'static str,
        /// The condition.
        expected: &'static str,
        /// How many there are.
        found: usize,
    },
}

impl GpuError {
    /// Whether memory of the device ran out, so that less work at a time may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Driver { code: 2, .. })
    }
}
