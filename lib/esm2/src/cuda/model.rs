//! A model in the library.
#![allow(unsafe_code)] // calls a library

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use plmkit_kit::{Fault, Stop};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::find::functions;
use super::interface::{
    Answer, Batch, Bytes, Functions, MemoryAsked, Note, Opening, OpeningGpu, Place,
};
use crate::buffers::Buffer;
use crate::error::EsmError;
use crate::model_info::ModelInfo;
use crate::pass::Pass;
use crate::timing::DeviceTimes;
use crate::varlen::Varlen;

/// Checks that the library can be opened, and can compute on a GPU or, by libtorch's operations, on the CPU.
pub(crate) fn check(gpu: Option<&OpeningGpu>) -> Result<(), EsmError> {
    let functions = functions(gpu)?;
    // SAFETY: the arguments live for the call.
    call(&gpu, |request, answer| unsafe {
        (functions.check)(request, answer);
    })
}

/// A model in the library.
#[derive(Debug)]
pub(crate) struct CudaModel {
    functions: &'static Functions,
    /// Not null.
    model: *mut c_void,
}

// SAFETY: the library permits calls from any thread, one at a time; a reference is not shared between threads, since the type is
// not `Sync`.
unsafe impl Send for CudaModel {}

impl CudaModel {
    /// Loads the checkpoint of a request.
    pub(crate) fn open(request: &Opening, stop: &Stop) -> Result<(ModelInfo, Self), EsmError> {
        let functions = functions(request.gpu.as_ref())?;
        // The library polls it as long as the process lives.
        let stop = Arc::into_raw(stop.flag());
        let mut model = ptr::null_mut();
        // SAFETY: the arguments live for the call, the flag for the process.
        let opened = call(request, |request, answer| unsafe {
            model = (functions.open)(request, stop, answer);
        });
        let (info, notes): (ModelInfo, Vec<Note>) = opened?;
        notes.iter().for_each(Note::log);
        Ok((info, Self { functions, model }))
    }

    /// Begins a pass over a batch. `values` is memory for its columns.
    pub(crate) fn submit(
        &self,
        batch: Varlen<'_>,
        pass: &Pass,
        values: Vec<Buffer<f32>>,
    ) -> Result<Ticket, EsmError> {
        let lent = Batch {
            tokens: batch.tokens().as_ptr(),
            total_tokens: batch.total_tokens(),
            cu_seqlens: batch.cu_seqlens().as_ptr(),
            sequences: batch.sequences(),
        };
        let mut computation = ptr::null_mut();
        // SAFETY: the model is open, and the arguments live for the call.
        call::<()>(pass, |request, answer| unsafe {
            computation = (self.functions.submit)(self.model, lent, request, answer);
        })?;
        Ok(Ticket {
            columns: values,
            pending: Some((self.functions, computation)),
        })
    }

    /// Asks for device memory, or about it.
    pub(crate) fn memory(&self, asked: &MemoryAsked) -> Result<Option<(u64, u64)>, EsmError> {
        // SAFETY: the model is open, and the arguments live for the call.
        call(asked, |request, answer| unsafe {
            (self.functions.memory)(self.model, request, answer);
        })
    }
}

impl Drop for CudaModel {
    fn drop(&mut self) {
        // SAFETY: the model is open and not used again.
        unsafe { (self.functions.close)(self.model) }
    }
}

/// The computation of a batch.
#[derive(Debug, Default)]
pub struct Ticket {
    /// For each column the values of all sequences in turn, once they are there.
    pub(crate) columns: Vec<Buffer<f32>>,
    /// A ticket of the library, while a device computes and then copies the values. The program continues.
    pending: Option<(&'static Functions, *mut c_void)>,
}

// SAFETY: as for the model.
unsafe impl Send for Ticket {}

impl Ticket {
    /// The values of each column, which are there.
    pub(crate) fn of(columns: Vec<Buffer<f32>>) -> Self {
        let pending = None;
        Self { columns, pending }
    }

    /// Whether a device computes the values while the program continues.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Waits for the values of each column, and for the device's times; `None` if the program computed the values itself.
    pub fn collect(mut self) -> Result<(Vec<Buffer<f32>>, Option<DeviceTimes>), EsmError> {
        let mut columns = std::mem::take(&mut self.columns);
        let times = self.finish(&mut columns)?;
        Ok((columns, times))
    }

    /// Waits for the computation. Without columns, its values are dropped.
    fn finish(&mut self, columns: &mut [Buffer<f32>]) -> Result<Option<DeviceTimes>, EsmError> {
        let Some((functions, computation)) = self.pending.take() else {
            return Ok(None);
        };
        let places = columns.iter_mut().map(|values| Place {
            data: values.as_mut_ptr(),
            len: values.len(),
        });
        let places: Vec<Place> = places.collect();
        // SAFETY: the ticket has not been collected, and the places are memory of their sizes.
        call(&(), |_, answer| unsafe {
            (functions.collect)(computation, places.as_ptr(), places.len(), answer);
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Whether that failed is of no interest.
        let _ = self.finish(&mut []);
    }
}

/// Calls a function of the library with a request. Returns its answer.
fn call<T: DeserializeOwned>(
    request: &impl Serialize,
    function: impl FnOnce(Bytes, Answer),
) -> Result<T, EsmError> {
    let broken = |error| Fault::internal(format_args!("the library for GPUs: {error}"));
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
    function(lent, to);
    serde_json::from_slice::<Result<T, EsmError>>(&answer).map_err(broken)?
}

/// Appends the bytes of an answer to the `Vec<u8>` at `to`.
unsafe extern "C" fn append(to: *mut c_void, bytes: Bytes) {
    // SAFETY: `call` lends the vector, which nothing else uses meanwhile, and the library the bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(bytes.data, bytes.len);
        (*to.cast::<Vec<u8>>()).extend_from_slice(bytes);
    }
}
