//! The functions of the library: see [`plmkit_esm2::cuda`].
//!
//! No panic leaves them: each is caught and answered as a refusal. Pointers are those that the interface promises; a model and a
//! ticket are boxes that [`open`] and [`submit`] leak and [`close`] and [`collect`] take back.
#![allow(unsafe_code)] // a C interface

use std::ffi::{CString, c_char, c_void};
use std::panic;
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use plmkit_esm2::cuda::{
    Answer, Batch, Bytes, Functions, Note, Opening, OpeningGpu, Place, VERSION,
};
use plmkit_esm2::{DeviceTimes, ModelInfo, Pass, Varlen, read_checkpoint, set_threads};
use plmkit_kit::{Stop, catch_decoder_panic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::CudaError;
use crate::checkpoint;
use crate::libtorch;
use crate::model::TorchModel;
use crate::shim::cuda_memory;
use crate::transfer::Pending;

/// See [`Functions`].
#[unsafe(export_name = "plmkit_cuda_functions")]
static FUNCTIONS: Functions = Functions {
    check,
    open,
    submit,
    collect,
    memory,
    close,
};

/// See [`Version`](plmkit_esm2::cuda::Version).
#[unsafe(export_name = "plmkit_cuda_version")]
extern "C" fn version() -> *const c_char {
    static TEXT: OnceLock<CString> = OnceLock::new();
    let text = TEXT.get_or_init(|| CString::new(VERSION).unwrap_or_default());
    text.as_ptr()
}

/// See [`Functions::check`].
///
/// # Safety
/// Request and answer live for the call.
unsafe extern "C" fn check(request: Bytes, answer: Answer) {
    // SAFETY: as the caller promises.
    let work = || unsafe {
        let gpu: Option<OpeningGpu> = read(request)?;
        Ok(libtorch::prepare(gpu.as_ref())?)
    };
    // SAFETY: as the caller promises.
    unsafe { reply(answer, work) }
}

/// See [`Functions::open`].
///
/// # Safety
/// Request and answer live for the call, the flag as long as the process.
unsafe extern "C" fn open(request: Bytes, stop: *const AtomicBool, answer: Answer) -> *mut c_void {
    // The program reports what is answered.
    panic::set_hook(Box::new(|_| {}));
    let mut opened = ptr::null_mut();
    // SAFETY: as the caller promises.
    let work = || unsafe {
        let opening: Opening = read(request)?;
        let stop = Stop::of(&*stop);
        let (model, info, notes) = load(&opening, &stop)?;
        opened = Box::into_raw(Box::new(model)).cast();
        Ok((info, notes))
    };
    // SAFETY: as the caller promises.
    unsafe { reply(answer, work) };
    opened
}

fn load(opening: &Opening, stop: &Stop) -> Result<(TorchModel, ModelInfo, Vec<Note>), CudaError> {
    set_threads(opening.threads);
    let gpu = opening.gpu.as_ref();
    libtorch::prepare(gpu)?;
    let path = Path::new(&opening.model);
    let (checkpoint, (model, compiled, notes)) =
        read_checkpoint(path, &opening.known, stop, |tensors, _| {
            checkpoint::load(tensors, opening, stop)
        })?;
    let gpu = gpu.map(|gpu| Ok::<_, CudaError>((gpu.clone(), cuda_memory(gpu.index)?)));
    let kernels = model.encoder.kernels().to_owned();
    let mut info = ModelInfo::new(checkpoint, gpu.transpose()?, opening.dtype, kernels);
    info.load_times.compiled = compiled;
    Ok((model, info, notes))
}

/// See [`Functions::submit`].
///
/// # Safety
/// The model is open, and everything else lives for the call.
unsafe extern "C" fn submit(
    model: *const c_void,
    batch: Batch,
    request: Bytes,
    answer: Answer,
) -> *mut c_void {
    let mut ticket = ptr::null_mut();
    // SAFETY: as the caller promises.
    let work = || unsafe {
        let model = &*model.cast::<TorchModel>();
        let pass: Pass = read(request)?;
        let tokens = slice::from_raw_parts(batch.tokens, batch.total_tokens);
        let cu_seqlens = slice::from_raw_parts(batch.cu_seqlens, batch.sequences + 1);
        let batch = Varlen::new(tokens, cu_seqlens).map_err(CudaError::from_libtorch_message)?;
        let pending = model.submit(batch, &pass)?;
        ticket = Box::into_raw(Box::new(pending)).cast();
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { reply(answer, work) };
    ticket
}

/// See [`Functions::collect`].
///
/// # Safety
/// The ticket was not collected before, and the places are memory of their sizes that nothing else uses.
unsafe extern "C" fn collect(
    ticket: *mut c_void,
    places: *const Place,
    count: usize,
    answer: Answer,
) {
    // SAFETY: as the caller promises.
    let work = || unsafe {
        let pending = Box::from_raw(ticket.cast::<Pending>());
        if count == 0 {
            return Ok(None::<DeviceTimes>);
        }
        let places = slice::from_raw_parts(places, count).iter();
        let places = places.map(|place| slice::from_raw_parts_mut(place.data, place.len));
        pending.collect(&mut places.collect::<Vec<_>>())
    };
    // SAFETY: as the caller promises.
    unsafe { reply(answer, work) }
}

/// See [`Functions::memory`].
///
/// # Safety
/// The model is open, and everything else lives for the call.
unsafe extern "C" fn memory(model: *const c_void, request: Bytes, answer: Answer) {
    // SAFETY: as the caller promises.
    let work = || unsafe { (*model.cast::<TorchModel>()).memory(&read(request)?) };
    // SAFETY: as the caller promises.
    unsafe { reply(answer, work) }
}

/// See [`Functions::close`].
///
/// # Safety
/// The model is open and not used again.
unsafe extern "C" fn close(model: *mut c_void) {
    // SAFETY: as the caller promises.
    let _ = catch_decoder_panic(|| drop(unsafe { Box::from_raw(model.cast::<TorchModel>()) }));
}

/// Reads a request.
///
/// # Safety
/// The bytes live.
unsafe fn read<T: DeserializeOwned>(request: Bytes) -> Result<T, CudaError> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { slice::from_raw_parts(request.data, request.len) };
    serde_json::from_slice(bytes)
        .map_err(|error| CudaError::from_libtorch_message(error.to_string()))
}

/// Does `work` and answers with its result.
///
/// # Safety
/// The answer's function and its argument are valid.
unsafe fn reply<T: Serialize>(answer: Answer, work: impl FnOnce() -> Result<T, CudaError>) {
    let panicked = |text| Err(CudaError::from_libtorch_message(format!("panic: {text}")));
    let done = catch_decoder_panic(work)
        .unwrap_or_else(panicked)
        .map_err(|CudaError(error)| error);
    let text = serde_json::to_vec(&done).unwrap_or_default();
    let bytes = Bytes {
        data: text.as_ptr(),
        len: text.len(),
    };
    // SAFETY: as the caller promises.
    unsafe { (answer.write)(answer.to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn keep(to: *mut c_void, bytes: Bytes) {
        // SAFETY: `answered` lends the text, `reply` the bytes.
        unsafe {
            let bytes = slice::from_raw_parts(bytes.data, bytes.len);
            *to.cast::<String>() = String::from_utf8_lossy(bytes).into_owned();
        }
    }

    /// Returns the answer of a function.
    fn answered(function: impl FnOnce(Answer)) -> String {
        let mut text = String::new();
        let to = (&raw mut text).cast();
        function(Answer { write: keep, to });
        text
    }

    #[test]
    fn panics_and_requests_that_are_not_understood_are_answered() {
        let panics = || -> Result<(), CudaError> { panic!("at layer {}", 7) };
        // SAFETY: the answer lives for the call, here and below.
        let text = answered(|answer| unsafe { reply(answer, panics) });
        assert_eq!(
            text,
            r#"{"Err":{"Refused":{"exit":"Internal","message":"libtorch: panic: at layer 7"}}}"#
        );

        let request = b"[";
        let request = Bytes {
            data: request.as_ptr(),
            len: request.len(),
        };
        let text = answered(|answer| unsafe { check(request, answer) });
        assert!(text.contains("EOF while parsing a list"), "{text}");

        let request = b"null";
        let request = Bytes {
            data: request.as_ptr(),
            len: request.len(),
        };
        let text = answered(|answer| unsafe { check(request, answer) });
        assert_eq!(text, r#"{"Ok":null}"#);
    }
}
