//! The C interface of `libplmkit_cuda.so`: the functions, and what they exchange.

use std::ffi::{OsString, c_char, c_void};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

use plmkit_contract::{Column, Dtype};
use serde::{Deserialize, Serialize};

use crate::device::Device;

/// What [`Version`] returns. The program refuses every other library: both are built from one source.
pub const VERSION: &str = concat!("plmkit ", env!("CARGO_PKG_VERSION"), ", interface 4");

/// Returns [`VERSION`], ended by 0. Every version of the library has this function, `plmkit_cuda_version`.
pub type Version = unsafe extern "C" fn() -> *const c_char;

/// The functions of the library, which has them in the variable `plmkit_cuda_functions`.
#[derive(Debug)]
#[repr(C)]
pub struct Functions {
    /// Checks that libtorch can compute on an `Option<OpeningGpu>`, or on the CPU, and answers with `()`.
    pub check: unsafe extern "C" fn(Bytes, Answer),
    /// Loads the model of an [`Opening`] and answers with its [`ModelInfo`](crate::ModelInfo) and log lines, `Vec<Note>`. Polls the
    /// flag, which is true if the program is to stop and lives as long as the process. Returns the model; null after a refusal.
    pub open: unsafe extern "C" fn(Bytes, *const AtomicBool, Answer) -> *mut c_void,
    /// Begins a [`Pass`](crate::Pass), whose heads exist, over a batch. Answers with `()`. Has read the batch when it returns. Returns a ticket;
    /// null after a refusal. One thread at a time may use a model.
    pub submit: unsafe extern "C" fn(*const c_void, Batch, Bytes, Answer) -> *mut c_void,
    /// Waits for a ticket, writes its columns to so many places and answers with the [`DeviceTimes`](crate::DeviceTimes), if a device
    /// measured them. Without places, drops the computation. The ticket ends in any case.
    pub collect: unsafe extern "C" fn(*mut c_void, *const Place, usize, Answer),
    /// Does what a [`MemoryAsked`] says and answers with `Option<(u64, u64)>`: MiB of device memory that tensors hold now, and the
    /// most since the last answer; with none on a CPU.
    pub memory: unsafe extern "C" fn(*const c_void, Bytes, Answer),
    /// Ends a model. Its tickets may outlive it.
    pub close: unsafe extern "C" fn(*mut c_void),
}

impl Functions {
    /// The names of the functions, in their order.
    pub(super) const NAMES: [&str; 6] = ["check", "open", "submit", "collect", "memory", "close"];
}

/// Bytes that a call lends: JSON.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// The first of them.
    pub data: *const u8,
    pub len: usize,
}

/// Takes the answer of a function, once: JSON of a `Result` with an [`EsmError`](crate::EsmError).
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

/// Memory for the values of a column.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Place {
    /// The first of them.
    pub data: *mut f32,
    pub len: usize,
}

/// A model to load.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The folder or weight file.
    pub model: OsString,
    /// What [`describe`](crate::describe) tells of it; may be empty.
    pub known: String,
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

/// A log line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Whether it is a warning; otherwise information.
    pub warning: bool,
    pub text: String,
}

impl Note {
    /// Logs the line. The library has no log.
    pub(crate) fn log(&self) {
        if self.warning {
            tracing::warn!("{}", self.text);
        } else {
            tracing::info!("{}", self.text);
        }
    }
}

/// What [`Functions::memory`] is asked for.
#[derive(Debug, Serialize, Deserialize)]
pub enum MemoryAsked {
    /// The memory that tensors hold.
    Used,
    /// To free device memory that is cached for later batches.
    Release,
    /// To page-lock memory for batches of up to so many sequences and tokens. Answers with none if the device has no use for it.
    Reserve {
        sequences: usize,
        tokens: usize,
        columns: Vec<Column>,
    },
}
