//! Errors of loading, compiling and launching kernels.

/// Why kernels cannot be compiled, loaded or launched.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// A library of CUDA cannot be loaded: its name and the reason, in the loader's words.
    #[error("cannot load {0}")]
    NoLibrary(String),
    /// A library of CUDA lacks a function because it is older than CUDA 11.4.
    #[error("{library} has no {symbol}: expected that of CUDA 11.4 or newer")]
    NoSymbol {
        library: &'static str,
        symbol: &'static str,
    },
    /// NVRTC does not support architectures as old as the device's.
    #[error(
        "NVRTC compiles for no architecture up to sm_{architecture}: the device is older than it supports"
    )]
    Unsupported {
        /// The architecture of the device.
        architecture: u32,
    },
    /// The compiler refused the kernels.
    #[error("the kernels do not compile for sm_{architecture}: {log}")]
    Compile {
        architecture: u32,
        /// NVRTC's log.
        log: String,
    },
    /// A call of NVRTC failed.
    #[error("NVRTC: {call} failed: {reason}")]
    Nvrtc {
        call: &'static str,
        /// The library's words.
        reason: String,
    },
    /// A call of the driver failed, possibly because of an earlier launch.
    #[error("CUDA driver: {call} failed: {reason} ({code})")]
    Driver {
        call: &'static str,
        /// The `CUresult`.
        code: u32,
        /// The library's words.
        reason: String,
    },
    /// A size or pointer does not meet the conditions of a kernel.
    #[error("{0}")]
    Argument(String),
}

impl GpuError {
    /// Whether device memory is full, so that less work at a time may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Driver { code: 2, .. })
    }
}
