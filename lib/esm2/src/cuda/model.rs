//! A model in the library.
#![allow(unsafe_code)] // calls a library

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use plmkit_contract::{Column, Exit, Stop, Widths};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::find::functions;
use super::{
    Answer, Batch, Bytes, Columns, Functions, MemoryAsked, Opened, Opening, OpeningGpu, Place,
    Refusal, Submitting,
};
use crate::backend::{Backend, Ticket};
use crate::compute_options::Plan;
use crate::threads::threads;
use crate::{Buffer, Buffers, DeviceTimes, Dtype, EsmError, ModelInfo, Varlen};

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
    /// Values in the vectors.
    widths: Widths,
    /// Whether a GPU computes, while the program continues.
    on_gpu: bool,
    buffers: Buffers<f32>,
}

// SAFETY: the library permits calls from any thread, one at a time; a reference is not shared between threads, since the type is
// not `Sync`.
unsafe impl Send for CudaModel {}

/// A computation that has begun: a ticket of the library.
#[derive(Debug)]
pub(crate) struct Pending {
    functions: &'static Functions,
    /// Null after [`collect`](Self::collect).
    computation: *mut c_void,
}

// SAFETY: as for the model.
unsafe impl Send for Pending {}

impl CudaModel {
    /// Loads the checkpoint `model`.
    pub(crate) fn open(
        model: &Path,
        plan: Plan,
        profile: bool,
        stop: &Stop,
    ) -> Result<(ModelInfo, Self), EsmError> {
        let functions = functions(plan.gpu.as_ref())?;
        let request = Opening {
            model: model.as_os_str().to_owned(),
            gpu: plan.gpu,
            dtype: plan.dtype,
            fused: plan.fused,
            profile,
            threads: threads(),
        };
        // The library polls it as long as the process lives.
        let stop = Arc::into_raw(stop.flag());
        // SAFETY: the arguments live for the call, the flag for the process.
        let (model, Opened { info, notes }) = call(&request, |request, answer| unsafe {
            (functions.open)(request, stop, answer)
        })?;
        for note in notes {
            if note.warning {
                tracing::warn!("{}", note.text);
            } else {
                tracing::info!("{}", note.text);
            }
        }
        let model = Self {
            functions,
            model,
            widths: info.config().widths(),
            on_gpu: info.gpu.is_some(),
            buffers: Buffers::default(),
        };
        Ok((info, model))
    }
}

impl Backend for CudaModel {
    fn submit(
        &self,
        batch: Varlen<'_>,
        columns: &[Column],
        (depth, dtype): (usize, Dtype),
        _: &Stop,
    ) -> Result<Ticket, EsmError> {
        let mut values = batch.buffers(columns, self.widths, &self.buffers);
        let lent = Batch {
            tokens: batch.tokens().as_ptr(),
            total_tokens: batch.total_tokens(),
            cu_seqlens: batch.cu_seqlens().as_ptr(),
            sequences: batch.sequences(),
        };
        let request = Submitting {
            columns: columns.to_vec(),
            depth,
            dtype,
        };
        // SAFETY: the model is open, and the arguments live for the call.
        let (computation, ()) = call(&request, |request, answer| unsafe {
            (self.functions.submit)(self.model, lent, request, answer)
        })?;
        let pending = Pending {
            functions: self.functions,
            computation,
        };
        let pending = if self.on_gpu {
            Some(pending)
        } else {
            // libtorch's operations on a CPU have computed it.
            pending.collect(&mut values)?;
            None
        };
        Ok(Ticket {
            columns: values,
            pending,
        })
    }

    fn memory(&self, asked: &MemoryAsked) -> Result<Option<(u64, u64)>, EsmError> {
        // SAFETY: the model is open, and the arguments live for the call.
        let (_, memory) = call(asked, |request, answer| unsafe {
            (self.functions.memory)(self.model, request, answer)
        })?;
        Ok(memory)
    }
}

impl Drop for CudaModel {
    fn drop(&mut self) {
        // SAFETY: the model is open and not used again.
        unsafe { (self.functions.close)(self.model) }
    }
}

impl Pending {
    /// Waits for the values of each column, and the times of the device, if one measured them.
    pub(crate) fn collect(
        mut self,
        columns: &mut [Buffer<f32>],
    ) -> Result<Option<DeviceTimes>, EsmError> {
        let places = columns.iter_mut().map(|values| Place {
            data: values.as_mut_ptr(),
            len: values.len(),
        });
        let places: Vec<Place> = places.collect();
        let lent = Columns {
            places: places.as_ptr(),
            count: places.len(),
        };
        let computation = std::mem::replace(&mut self.computation, ptr::null_mut());
        // SAFETY: the ticket has not been collected, and the places are memory of their sizes.
        let (_, times) = call(&(), |_, answer| unsafe {
            (self.functions.collect)(computation, lent, answer)
        })?;
        Ok(times)
    }
}

impl Drop for Pending {
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
