//! The C interface of `libplmkit_cuda.so`: the functions, and what they exchange.

use std::ffi::{OsString, c_char, c_void};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use libloading::os::unix::Library;
use plmkit_contract::Column;
use serde::{Deserialize, Serialize};

use crate::{Device, Dtype, ModelInfo};

/// What [`Version`] returns. The program refuses every other library: both are built from one source.
pub const VERSION: &str = concat!("plmkit ", env!("CARGO_PKG_VERSION"), ", interface 1");

/// Returns [`VERSION`], ended by 0. Every version of the library has this function, `plmkit_cuda_version`.
pub type Version = unsafe extern "C" fn() -> *const c_char;

/// Declares the types of functions, and a table of them by their names in the library.
macro_rules! functions {
    ($($(#[$doc:meta])* $kind:ident $field:ident $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$doc])* pub type $kind = unsafe extern "C" fn($($argument),*) $(-> $result)?;)*

        /// The functions of the library, which stays open.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $field: $kind,)*
        }

        impl Functions {
            /// Finds the functions.
            ///
            /// # Safety
            /// The library has [`VERSION`].
            #[allow(unsafe_code)]
            pub(super) unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: a library of this version has these functions with these types.
                Ok(Self {
                    $($field: *unsafe { library.get($symbol) }?,)*
                })
            }
        }
    };
}

functions! {
    /// Checks that libtorch can compute on an `Option<OpeningGpu>`, or on the CPU, and answers with `()`.
    Check check b"plmkit_cuda_check" (Bytes, Answer) -> bool;
    /// Loads the model of an [`Opening`] and answers with [`Opened`]. Polls the flag, which is true if the program is to stop and
    /// lives as long as the process. Returns the model; null after a refusal.
    Open open b"plmkit_cuda_open" (Bytes, *const AtomicBool, Answer) -> *mut c_void;
    /// Begins to compute the columns of a [`Submitting`] for a batch, and answers with `()`. Has read the batch when it returns.
    /// Returns a ticket; null after a refusal. One thread at a time may use a model.
    Submit submit b"plmkit_cuda_submit" (*const c_void, Batch, Bytes, Answer) -> *mut c_void;
    /// Waits for a ticket, writes its columns and answers with the [`DeviceTimes`](crate::DeviceTimes), if a device measured them.
    /// Without columns, drops the computation. The ticket ends in any case.
    Collect collect b"plmkit_cuda_collect" (*mut c_void, Columns, Answer) -> bool;
    /// Does what a [`MemoryAsked`] says and answers with `Option<(u64, u64)>`: MiB of device memory that tensors hold now, and the
    /// most since the last answer; with none on a CPU.
    Memory memory b"plmkit_cuda_memory" (*const c_void, Bytes, Answer) -> bool;
    /// Ends a model. Its tickets may outlive it.
    Close close b"plmkit_cuda_close" (*mut c_void);
}

/// Bytes that a call lends: JSON.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// The first of them.
    pub data: *const u8,
    /// Their number.
    pub len: usize,
}

/// Takes the answer of a function, once: JSON of a `Result` with a [`Refusal`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    /// Takes the bytes, which live for this call.
    pub write: unsafe extern "C" fn(to: *mut c_void, bytes: Bytes),
    /// What `write` needs.
    pub to: *mut c_void,
}

/// A batch without padding: see [`Varlen`](crate::Varlen).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Batch {
    /// Token ids.
    pub tokens: *const u8,
    /// The number of tokens.
    pub total_tokens: usize,
    /// Where each sequence begins and the last one ends, `(sequences + 1)`.
    pub cu_seqlens: *const i32,
    /// The number of sequences.
    pub sequences: usize,
}

/// Memory for the values of each column.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Columns {
    /// The first of them.
    pub places: *const Place,
    /// Their number; 0 to drop the values.
    pub count: usize,
}

/// Memory for values.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Place {
    /// The first of them.
    pub data: *mut f32,
    /// Their number.
    pub len: usize,
}

/// A model to load.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The folder or weight file.
    pub model: OsString,
    /// The GPU; `None` for libtorch's operations on the CPU.
    pub gpu: Option<OpeningGpu>,
    /// The type of the computation.
    pub dtype: Dtype,
    /// On a GPU, whether to use plmkit's kernels between matrix products and attention.
    pub fused: bool,
    /// Whether to measure the kinds of work of a GPU.
    pub profile: bool,
    /// CPU threads.
    pub threads: NonZeroUsize,
}

/// The GPU of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpeningGpu {
    /// The device that was asked for, for messages.
    pub device: Device,
    /// The driver's name for the GPU.
    pub name: String,
    /// Its number among the visible ones.
    pub index: usize,
    /// Its compute capability, major and minor.
    pub capability: (i32, i32),
}

/// A loaded model.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opened {
    /// The facts about it.
    pub info: ModelInfo,
    /// Log lines.
    pub notes: Vec<Note>,
}

/// A log line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Note {
    /// Whether it is a warning; otherwise information.
    pub warning: bool,
    /// The line.
    pub text: String,
}

/// What to compute for a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct Submitting {
    /// The columns. Their heads exist.
    pub columns: Vec<Column>,
    /// The layers that they need.
    pub depth: usize,
    /// The type.
    pub dtype: Dtype,
}

/// What [`Memory`] is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemoryAsked {
    /// The memory that tensors hold.
    Used,
    /// To free device memory that is cached for later batches.
    Release,
    /// To page-lock memory for batches of up to so many sequences and tokens. Answers with none if the device has no use for it.
    Reserve {
        /// Sequences and tokens.
        largest: (usize, usize),
        /// The columns.
        columns: Vec<Column>,
    },
}

/// Why a function failed.
#[derive(Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Memory is full: see [`EsmError::OutOfMemory`](crate::EsmError::OutOfMemory).
    OutOfMemory(String),
    /// The program is to stop.
    Stopped,
    /// Anything else.
    Other {
        /// The exit code of the program.
        exit: u8,
        /// One line.
        message: String,
    },
}
