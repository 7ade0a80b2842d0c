//! Operations of libtorch that tch's C interface lacks: see `shim/shim.h`.
#![allow(unsafe_code)] // the only calls into C++ of this crate

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

use plmkit_esm2::EsmError;
use tch::Tensor;

use crate::CudaError;

/// `plmkit_failure`
#[repr(C)]
struct Failure {
    out_of_memory: bool,
    what: [c_char; 1024],
}

unsafe extern "C" {
    fn plmkit_varlen_attention(
        flash: bool,
        query: *const c_void,
        key: *const c_void,
        value: *const c_void,
        offsets: *const c_void,
        longest: i64,
        scale: f64,
        mixed: *mut *mut c_void,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_device_memory(index: c_int, total: *mut usize, failure: *mut Failure) -> bool;
    fn plmkit_device_used(
        index: c_int,
        now: *mut usize,
        peak: *mut usize,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_device_current_stream(index: c_int, stream: *mut i64, failure: *mut Failure) -> bool;
    fn plmkit_device_another_stream(index: c_int, stream: *mut i64, failure: *mut Failure) -> bool;
    fn plmkit_device_mark(index: c_int, stream: i64, failure: *mut Failure) -> *mut c_void;
    fn plmkit_device_follow(
        index: c_int,
        stream: i64,
        mark: *const c_void,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_pin(tensor: *const c_void, pinned: *mut *mut c_void, failure: *mut Failure) -> bool;
    fn plmkit_device_copy_in(
        index: c_int,
        stream: i64,
        reader: i64,
        pinned: *const c_void,
        copy: *mut *mut c_void,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_device_copy_out(
        index: c_int,
        stream: i64,
        tensor: *const c_void,
        copy: *mut *mut c_void,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_device_wait(mark: *const c_void, failure: *mut Failure) -> bool;
    fn plmkit_device_between(
        first: *const c_void,
        second: *const c_void,
        milliseconds: *mut f64,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_device_forget(mark: *mut c_void);
    fn plmkit_device_release(failure: *mut Failure) -> bool;
}

/// Attention over sequences that lie end to end: by `FlashAttention` (Dao 2023, arXiv:2307.08691) for f16 and bf16 from compute
/// capability 8.0, or memory-efficient attention (Rabe and Staats 2021, arXiv:2112.05682) also for f32 and older devices.
///
/// Maps queries, keys and values, `(total_tokens, heads, head_dim)` each, to `(total_tokens, heads, head_dim)`. `offsets`,
/// `(sequences + 1)` i32 on the same device, are where sequences begin and the last one ends. The longest sequence has
/// `longest` tokens. Scores are multiplied by `scale`.
pub(crate) fn varlen_attention(
    flash: bool,
    [query, key, value]: [&Tensor; 3],
    offsets: &Tensor,
    longest: i64,
    scale: f64,
) -> Result<Tensor, CudaError> {
    let [query, key, value, offsets] = [query, key, value, offsets].map(handle);
    // SAFETY: the tensors outlive the call, which only reads them. It writes to the pointer and the failure of `call`.
    call_for_tensor(|mixed, failure| unsafe {
        plmkit_varlen_attention(
            flash, query, key, value, offsets, longest, scale, mixed, failure,
        )
    })
}

/// Returns the total memory of CUDA device `index` in bytes.
pub(crate) fn cuda_memory(index: usize) -> Result<usize, CudaError> {
    let mut total = 0;
    let index = number(index);
    // SAFETY: the call writes to a local number and a failure.
    call(|failure| unsafe { plmkit_device_memory(index, &raw mut total, failure) })?;
    Ok(total)
}

/// Returns the bytes of CUDA device `index` that tensors of this process hold now, and the most since the last call.
pub(crate) fn cuda_used(index: usize) -> Result<(usize, usize), CudaError> {
    let (mut now, mut peak) = (0, 0);
    let index = number(index);
    // SAFETY: the call writes to two local numbers and a failure.
    call(|failure| unsafe { plmkit_device_used(index, &raw mut now, &raw mut peak, failure) })?;
    Ok((now, peak))
}

/// Copies a host tensor to page-locked memory, from which a device can copy by itself.
pub(crate) fn pin(tensor: &Tensor) -> Result<Tensor, CudaError> {
    // SAFETY: the tensor outlives the call, which writes to the pointer and the failure of `call`.
    call_for_tensor(|pinned, failure| unsafe { plmkit_pin(handle(tensor), pinned, failure) })
}

/// A stream of a CUDA device: work on it runs in order, and beside the work of other streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    index: c_int,
    /// libtorch's number of the stream.
    id: i64,
}

impl Stream {
    /// Returns the stream on which libtorch computes on device `index`.
    pub(crate) fn current(index: usize) -> Result<Self, CudaError> {
        Self::find(index, plmkit_device_current_stream)
    }

    /// Returns another stream of device `index`. Each call returns a new one.
    pub(crate) fn another(index: usize) -> Result<Self, CudaError> {
        Self::find(index, plmkit_device_another_stream)
    }

    fn find(
        index: usize,
        find: unsafe extern "C" fn(c_int, *mut i64, *mut Failure) -> bool,
    ) -> Result<Self, CudaError> {
        let mut stream = Self {
            index: number(index),
            id: 0,
        };
        // SAFETY: the call writes to a local number and a failure.
        call(|failure| unsafe { find(stream.index, &raw mut stream.id, failure) })?;
        Ok(stream)
    }

    /// Records an event at the current end of the stream.
    pub(crate) fn record(&self) -> Result<CudaEvent, CudaError> {
        let mut mark = ptr::null_mut();
        call(|failure| {
            // SAFETY: the call writes to a failure.
            mark = unsafe { plmkit_device_mark(self.index, self.id, failure) };
            !mark.is_null()
        })?;
        Ok(CudaEvent(mark))
    }

    /// Makes later work of the stream wait for an event of any stream of the device.
    pub(crate) fn follow(&self, mark: &CudaEvent) -> Result<(), CudaError> {
        // SAFETY: the event outlives the call.
        call(|failure| unsafe { plmkit_device_follow(self.index, self.id, mark.0, failure) })
    }

    /// Queues a copy of a [`pin`]ned tensor to the device for `reader`, which must [`follow`](Self::follow) the copy. The tensors
    /// may be dropped before the copy is done.
    pub(crate) fn copy_in(&self, pinned: &Tensor, reader: &Self) -> Result<Tensor, CudaError> {
        // SAFETY: the tensor outlives the call, which writes to the pointer and the failure of `call`. libtorch keeps the memory
        // of both tensors until the streams have used it.
        call_for_tensor(|copy, failure| unsafe {
            plmkit_device_copy_in(
                self.index,
                self.id,
                reader.id,
                handle(pinned),
                copy,
                failure,
            )
        })
    }

    /// Queues a copy of a device tensor to page-locked memory. The tensor may be dropped before the copy is done, but not
    /// written to.
    pub(crate) fn copy_out(&self, tensor: &Tensor) -> Result<Tensor, CudaError> {
        // SAFETY: as above.
        call_for_tensor(|copy, failure| unsafe {
            plmkit_device_copy_out(self.index, self.id, handle(tensor), copy, failure)
        })
    }
}

/// An event in the work of a stream.
#[derive(Debug)]
pub(crate) struct CudaEvent(*mut c_void);

impl CudaEvent {
    /// Waits until the device has reached the event.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the event lives as long as `self`.
        call(|failure| unsafe { plmkit_device_wait(self.0, failure) })
    }

    /// Returns the device's time from `self` to `later`. The device has passed both.
    pub(crate) fn until(&self, later: &Self) -> Result<Duration, CudaError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events outlive the call, which writes to a local number.
        call(|failure| unsafe {
            plmkit_device_between(self.0, later.0, &raw mut milliseconds, failure)
        })?;
        Ok(Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default())
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: nothing else uses the event.
        unsafe { plmkit_device_forget(self.0) }
    }
}

/// Frees device memory that libtorch caches.
pub(crate) fn cuda_release() -> Result<(), CudaError> {
    // SAFETY: the call writes to a failure.
    call(|failure| unsafe { plmkit_device_release(failure) })
}

/// Returns a device number for the shim. No device has a number that is too large.
fn number(index: usize) -> c_int {
    c_int::try_from(index).unwrap_or(c_int::MAX)
}

fn handle(tensor: &Tensor) -> *const c_void {
    tensor.as_ptr().cast()
}

/// Calls a function that creates a tensor.
fn call_for_tensor(
    function: impl FnOnce(*mut *mut c_void, *mut Failure) -> bool,
) -> Result<Tensor, CudaError> {
    let mut tensor = ptr::null_mut();
    call(|failure| function(&raw mut tensor, failure))?;
    // SAFETY: a successful call has created a tensor that this process owns.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}

/// Calls a function that returns whether it succeeded.
fn call(function: impl FnOnce(*mut Failure) -> bool) -> Result<(), CudaError> {
    let mut failure = Failure {
        out_of_memory: false,
        what: [0; 1024],
    };
    if function(&raw mut failure) {
        return Ok(());
    }
    // SAFETY: the text ends with a 0 inside the array, which begins as all 0.
    let what = unsafe { CStr::from_ptr(failure.what.as_ptr()) };
    let what = what.to_string_lossy().into_owned();
    Err(if failure.out_of_memory {
        EsmError::OutOfMemory(what).into()
    } else {
        CudaError::from_libtorch_message(what)
    })
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn what_a_cpu_does_not_have_is_an_error_in_one_line() {
        let x = Tensor::zeros([4, 2, 16], (Kind::Half, Device::Cpu));
        let offsets = Tensor::from_slice(&[0, 4]);
        for flash in [true, false] {
            let error = varlen_attention(flash, [&x, &x, &x], &offsets, 4, 0.25).unwrap_err();
            assert!(!error.0.is_out_of_memory());
            let text = error.to_string();
            assert!(
                text.contains("_attention_forward' with arguments from the 'CPU' backend"),
                "{text}"
            );
            assert!(!text.contains('\n'));
        }
    }

    #[test]
    fn without_cuda_there_is_no_memory_of_a_device_and_no_stream() {
        if !tch::Cuda::is_available() {
            assert!(cuda_memory(0).is_err());
            assert!(cuda_used(0).is_err());
            assert!(cuda_release().is_err());
            assert!(Stream::current(0).is_err());
            assert!(Stream::another(0).is_err());
            let stream = Stream { index: 0, id: 0 };
            assert!(stream.record().is_err());
            let here = Tensor::from_slice(&[1.0]);
            assert!(pin(&here).is_err());
            assert!(stream.copy_in(&here, &stream).is_err());
            assert!(stream.copy_out(&here).is_err());
        }
    }
}
