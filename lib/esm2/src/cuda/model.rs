//! A model in the library.
#![allow(unsafe_code)] // calls a library

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use plmkit_contract::{Column, Exit, Stop};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::find::{Functions, functions};
use super::{
    Answer, Batch, Bytes, Columns, MemoryAsked, Opened, Opening, OpeningGpu, Place, Refusal,
    Submitting,
};
use crate::compute_options::Torch;
use crate::threads::threads;
use crate::{Buffer, Buffers, DeviceTimes, Dtype, EsmError, Varlen};

/// Checks that the library can be opened, and can compute on a GPU or, by libtorch's operations, on the CPU.
pub(crate) fn check(gpu: Option<&OpeningGpu>) -> Result<(), EsmError> {
    let functions = functions(gpu)?;
    // SAFETY: the arguments live for the call.
    let (_, ()) = call(&gpu, |request, answer| unsafe {
        (functions.check)(request, answer)
    })?;
    Ok(())
}

/// A model in the library.
#[derive(Debug)]
pub(crate) struct CudaModel {
    functions: &'static Functions,
    /// Not null.
    model: *mut c_void,
    gpu: Option<OpeningGpu>,
    total_memory: Option<usize>,
    kernels: String,
    hidden: usize,
    buffers: Buffers<f32>,
}

// SAFETY: the library permits calls from any thread, one at a time; a reference is not shared between threads, since the type is
// not `Sync`.
unsafe impl Send for CudaModel {}

/// A batch whose computation has begun.
#[derive(Debug)]
pub(crate) struct Ticket {
    functions: &'static Functions,
    /// Null after [`collect`](Self::collect).
    computation: *mut c_void,
    /// Memory for each column.
    values: Vec<Buffer<f32>>,
}

// SAFETY: as for the model.
unsafe impl Send for Ticket {}

impl CudaModel {
    /// Loads the checkpoint `model`.
    pub(crate) fn open(
        model: &Path,
        how: &Torch,
        (dtype, profile): (Dtype, bool),
        stop: &Stop,
    ) -> Result<(Self, Opened), EsmError> {
        let functions = functions(how.gpu.as_ref())?;
        let request = Opening {
            model: model.as_os_str().to_owned(),
            gpu: how.gpu.clone(),
            dtype,
            fused: how.fused,
            profile,
            threads: threads(),
        };
        // The library polls it as long as the process lives.
        let stop = Arc::into_raw(stop.flag());
        // SAFETY: the arguments live for the call, the flag for the process.
        let (model, opened) = call::<_, Opened>(&request, |request, answer| unsafe {
            (functions.open)(request, stop, answer)
        })?;
        for note in &opened.notes {
            if note.warning {
                tracing::warn!("{}", note.text);
            } else {
                tracing::info!("{}", note.text);
            }
        }
        let model = Self {
            functions,
            model,
            gpu: how.gpu.clone(),
            total_memory: opened.total_memory,
            kernels: opened.kernels.clone(),
            hidden: opened.checkpoint.config.hidden,
            buffers: Buffers::default(),
        };
        Ok((model, opened))
    }

    /// Returns the GPU and its memory in bytes; `None` on a CPU.
    pub(crate) fn gpu(&self) -> Option<(&OpeningGpu, usize)> {
        self.gpu.as_ref().zip(self.total_memory)
    }

    /// Returns what computes the layers: `cuda` or `libtorch`.
    pub(crate) fn kernels(&self) -> &str {
        &self.kernels
    }

    /// Asks for memory, or about it.
    pub(crate) fn memory(&self, asked: &MemoryAsked) -> Result<Option<(u64, u64)>, EsmError> {
        // SAFETY: the model is open, and the arguments live for the call.
        let (_, memory) = call(asked, |request, answer| unsafe {
            (self.functions.memory)(self.model, request, answer)
        })?;
        Ok(memory)
    }

    /// Begins to compute `columns` of a batch, which need the first `depth` layers. All heads that they need are there.
    pub(crate) fn submit(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        (depth, dtype): (usize, Dtype),
    ) -> Result<Ticket, EsmError> {
        let columns = columns.to_vec();
        let size = |&column: &Column| batch.values(column, self.hidden);
        let values = columns.iter().map(size);
        let values = values.map(|size| self.buffers.take(size)).collect();
        let lent = Batch {
            tokens: batch.tokens().as_ptr(),
            total_tokens: batch.total_tokens(),
            cu_seqlens: batch.cu_seqlens().as_ptr(),
            sequences: batch.sequences(),
        };
        let request = Submitting {
            columns,
            depth,
            dtype,
        };
        // SAFETY: the model is open, and the arguments live for the call.
        let (computation, ()) = call(&request, |request, answer| unsafe {
            (self.functions.submit)(self.model, lent, request, answer)
        })?;
        Ok(Ticket {
            functions: self.functions,
            computation,
            values,
        })
    }
}

impl Drop for CudaModel {
    fn drop(&mut self) {
        // SAFETY: the model is open and not used again.
        unsafe { (self.functions.close)(self.model) }
    }
}

impl Ticket {
    /// Waits for the values of each column. Returns them with the times of the device, if one measured them.
    pub(crate) fn collect(mut self) -> Result<(Vec<Buffer<f32>>, Option<DeviceTimes>), EsmError> {
        let mut values = std::mem::take(&mut self.values);
        let places = values.iter_mut().map(|values| Place {
            data: values.as_mut_ptr(),
            len: values.len(),
        });
        let places: Vec<Place> = places.collect();
        let columns = Columns {
            places: places.as_ptr(),
            count: places.len(),
        };
        let computation = std::mem::replace(&mut self.computation, ptr::null_mut());
        // SAFETY: the ticket has not been collected, and the places are memory of their sizes.
        let (_, times) = call(&(), |_, answer| unsafe {
            (self.functions.collect)(computation, columns, answer)
        })?;
        Ok((values, times))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.computation.is_null() {
            return;
        }
        let nothing = Columns {
            places: ptr::null(),
            count: 0,
        };
        // SAFETY: the ticket has not been collected. Whether that failed is of no interest.
        let _ = call::<_, Option<DeviceTimes>>(&(), |_, answer| unsafe {
            (self.functions.collect)(self.computation, nothing, answer)
        });
    }
}

/// Calls a function of the library with a request. Returns its result and its answer.
fn call<R, T: DeserializeOwned>(
    request: &impl Serialize,
    function: impl FnOnce(Bytes, Answer) -> R,
) -> Result<(R, T), EsmError> {
    let broken = |error: serde_json::Error| EsmError::Library {
        exit: Exit::Internal,
        message: format!("the library for GPUs: {error}"),
    };
    let request = serde_json::to_vec(request).map_err(broken)?;
    let lent = Bytes {
        data: request.as_ptr(),
        len: request.len(),
    };
    let mut answer = Vec::<u8>::new();
    let to = Answer {
        write: append,
        to: (&raw mut answer).cast(),
    };
    let result = function(lent, to);
    let answer: Result<T, Refusal> = serde_json::from_slice(&answer).map_err(broken)?;
    Ok((result, answer?))
}

/// Appends the bytes of an answer to the `Vec<u8>` at `to`.
unsafe extern "C" fn append(to: *mut c_void, bytes: Bytes) {
    // SAFETY: `call` lends the vector, which nothing else uses meanwhile, and the library the bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(bytes.data, bytes.len);
        (*to.cast::<Vec<u8>>()).extend_from_slice(bytes);
    }
}

impl From<Refusal> for EsmError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::OutOfMemory(what) => Self::OutOfMemory(what),
            Refusal::Stopped => Self::Stopped,
            Refusal::Other { exit, message } => Self::Library {
                exit: Exit::from_code(exit).unwrap_or(Exit::Internal),
                message,
            },
        }
    }
}
