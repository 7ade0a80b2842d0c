//! Operations of libtorch that its C interface lacks: see `shim/shim.h`.
#![allow(unsafe_code)] // the only calls into C++ of this crate

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

use tch::Tensor;

use crate::EsmError;

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
        mixed: *mut *mut c_void,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_cuda_memory(index: c_int, total: *mut usize, failure: *mut Failure) -> bool;
    fn plmkit_cuda_mark(index: c_int, failure: *mut Failure) -> *mut c_void;
    fn plmkit_cuda_wait(mark: *const c_void, failure: *mut Failure) -> bool;
    fn plmkit_cuda_between(
        first: *const c_void,
        second: *const c_void,
        milliseconds: *mut f64,
        failure: *mut Failure,
    ) -> bool;
    fn plmkit_cuda_forget(mark: *mut c_void);
    fn plmkit_cuda_release(failure: *mut Failure) -> bool;
}

/// Attention over sequences that lie end to end, by one kernel for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarlenKernel {
    /// `FlashAttention` (Dao 2023, arXiv:2307.08691): f16 and bf16, compute capability 8.0 and later.
    Flash,
    /// Memory-efficient attention (Rabe and Staats 2021, arXiv:2112.05682): f32 too, and older devices.
    MemoryEfficient,
}

impl VarlenKernel {
    /// Queries, keys and values, `(total_tokens, heads, head_dim)` each, to `(total_tokens, heads, head_dim)`. `offsets`,
    /// `(sequences + 1)` i32, are where sequences begin and the last one ends, on the same device; the longest has
    /// `longest` tokens.
    pub(crate) fn forward(
        self,
        [query, key, value]: [&Tensor; 3],
        offsets: &Tensor,
        longest: i64,
    ) -> Result<Tensor, EsmError> {
        let flash = self == Self::Flash;
        let mut mixed = ptr::null_mut();
        let [query, key, value, offsets] =
            [query, key, value, offsets].map(|tensor| tensor.as_ptr().cast::<c_void>());
        // SAFETY: the tensors live through the call, which reads them and nothing else of this process; it writes one pointer
        // and a failure, both of which are there.
        call(|failure| unsafe {
            plmkit_varlen_attention(
                flash,
                query,
                key,
                value,
                offsets,
                longest,
                &raw mut mixed,
                failure,
            )
        })?;
        // SAFETY: where the call went well it made a tensor that is ours.
        Ok(unsafe { Tensor::from_ptr(mixed.cast()) })
    }
}

/// The memory of CUDA device `index`, in bytes, whoever uses it.
pub(crate) fn cuda_memory(index: usize) -> Result<usize, EsmError> {
    let mut total = 0;
    let index = c_int::try_from(index).unwrap_or(c_int::MAX);
    // SAFETY: it writes a number and a failure, both of which are there.
    call(|failure| unsafe { plmkit_cuda_memory(index, &raw mut total, failure) })?;
    Ok(total)
}

/// A point in the work of a CUDA device.
#[derive(Debug)]
pub(crate) struct Mark(*mut c_void);

impl Mark {
    /// After all that libtorch has asked of device `index`.
    pub(crate) fn set(index: usize) -> Result<Self, EsmError> {
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        let mut mark = ptr::null_mut();
        call(|failure| {
            // SAFETY: it writes a failure, which is there.
            mark = unsafe { plmkit_cuda_mark(index, failure) };
            !mark.is_null()
        })?;
        Ok(Self(mark))
    }

    /// Waits until the device has come to it.
    pub(crate) fn wait(&self) -> Result<(), EsmError> {
        // SAFETY: the mark is alive as long as `self`.
        call(|failure| unsafe { plmkit_cuda_wait(self.0, failure) })
    }

    /// The time that the device took from `self` to `later`, both of which it has passed.
    pub(crate) fn until(&self, later: &Self) -> Result<Duration, EsmError> {
        let mut milliseconds = 0.0;
        // SAFETY: both marks are alive, and the number is there.
        call(|failure| unsafe {
            plmkit_cuda_between(self.0, later.0, &raw mut milliseconds, failure)
        })?;
        Ok(Duration::try_from_secs_f64(milliseconds / 1e3).unwrap_or_default())
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // SAFETY: nobody has the mark any more.
        unsafe { plmkit_cuda_forget(self.0) }
    }
}

/// Gives what libtorch keeps for later back to the device.
pub(crate) fn cuda_release() -> Result<(), EsmError> {
    // SAFETY: it writes a failure, which is there.
    call(|failure| unsafe { plmkit_cuda_release(failure) })
}

/// Calls a function that says whether it went well.
fn call(function: impl FnOnce(*mut Failure) -> bool) -> Result<(), EsmError> {
    let mut failure = Failure {
        out_of_memory: false,
        what: [0; 1024],
    };
    if function(&raw mut failure) {
        return Ok(());
    }
    // SAFETY: the text is ended by a 0 inside the array, which is all 0 where nothing was written.
    let what = unsafe { CStr::from_ptr(failure.what.as_ptr()) };
    let what = what.to_string_lossy().into_owned();
    Err(if failure.out_of_memory {
        EsmError::OutOfMemory(what)
    } else {
        EsmError::Torch(what)
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
        for kernel in [VarlenKernel::Flash, VarlenKernel::MemoryEfficient] {
            let error = kernel.forward([&x, &x, &x], &offsets, 4).unwrap_err();
            assert!(!error.is_out_of_memory());
            let text = error.to_string();
            assert!(
                text.contains("_attention_forward' with arguments from the 'CPU' backend"),
                "{text}"
            );
            assert!(!text.contains('\n'));
        }
    }

    #[test]
    fn without_cuda_there_is_no_memory_of_a_device() {
        if !tch::Cuda::is_available() {
            assert!(cuda_memory(0).is_err());
            assert!(cuda_release().is_err());
            assert!(Mark::set(0).is_err());
        }
    }
}
