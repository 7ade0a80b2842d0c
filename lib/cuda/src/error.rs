//! Errors of loading and computing on libtorch.

use plmkit_esm2::EsmError;
use plmkit_gpu::GpuError;
use plmkit_kit::Fault;
use tch::TchError;

/// An error of the model, of libtorch or of plmkit's GPU kernels, as the program is told.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct CudaError(#[from] pub(crate) EsmError);

impl From<GpuError> for CudaError {
    fn from(error: GpuError) -> Self {
        Self(if error.is_out_of_memory() {
            EsmError::OutOfMemory(error.to_string())
        } else {
            Fault::internal(format_args!("GPU: {error}")).into()
        })
    }
}

impl From<TchError> for CudaError {
    fn from(error: TchError) -> Self {
        let text = match error {
            TchError::Torch(text) => text,
            other => other.to_string(),
        };
        // The lines after the first are a C++ backtrace.
        Self::from_libtorch_message(text.lines().next().unwrap_or_default().to_owned())
    }
}

impl CudaError {
    /// Returns the error for a message of libtorch. Its C interface keeps no error class, so that memory errors are recognised by the
    /// words of libtorch's allocators, CUDA's driver and libraries, oneDNN (which has no message for memory alone) and C++.
    pub(crate) fn from_libtorch_message(line: String) -> Self {
        const OUT_OF_MEMORY: [&str; 5] = [
            "can't allocate memory",
            "out of memory",
            "ALLOC_FAILED",
            "std::bad_alloc",
            "could not create a primitive",
        ];
        // Those of the parser of a setting of the user.
        const OF_SETTING: [&str; 5] = [
            "allocator config",
            "allocator backend",
            "CachingAllocator option",
            "ConfigTokenizer",
            "garbage_collect_threshold",
        ];
        if OF_SETTING.iter().any(|words| line.contains(words)) {
            let what = format!("PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF: {line}");
            return Self(Fault::usage(what).into());
        }
        Self(if OUT_OF_MEMORY.iter().any(|words| line.contains(words)) {
            EsmError::OutOfMemory(line)
        } else {
            Fault::internal(format_args!("libtorch: {line}")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use plmkit_kit::{Exit, Failure};
    use tch::{Device, Kind, Tensor};

    use super::*;

    fn is_out_of_memory(error: &CudaError) -> bool {
        error.0.is_out_of_memory()
    }

    #[test]
    fn an_allocation_that_cannot_succeed_is_out_of_memory() {
        let too_much = Tensor::f_empty([1 << 50], (Kind::Float, Device::Cpu)).unwrap_err();
        let error = CudaError::from(too_much);
        assert!(is_out_of_memory(&error), "{error}");
        assert!(!error.to_string().contains('\n'));
        assert_eq!(error.0.exit(), Exit::Transient);
    }

    #[test]
    fn messages_of_full_memory_are_recognised() {
        for (line, out_of_memory) in [
            (
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                true,
            ),
            ("CUDA error: out of memory", true),
            ("std::bad_alloc", true),
            (
                "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
                false,
            ),
        ] {
            let error = CudaError::from_libtorch_message(line.to_owned());
            assert_eq!(is_out_of_memory(&error), out_of_memory, "{line}");
        }
    }

    #[test]
    fn a_setting_that_libtorch_refuses_is_named() {
        for line in [
            "Unrecognized key 'x' in CUDA allocator config.",
            "CachingAllocator option max_split_size_mb too small, must be >= 20",
            "Unknown allocator backend, options are native and cudaMallocAsync",
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
            "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'maybe'",
        ] {
            let error = CudaError::from_libtorch_message(line.to_owned()).0;
            let expected = format!("PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF: {line}");
            assert_eq!((error.exit(), error.to_string()), (Exit::Usage, expected));
        }
    }

    #[test]
    fn a_refused_operation_is_one_line() {
        let flat = Tensor::f_zeros([6], (Kind::Float, Device::Cpu)).unwrap();
        let error = CudaError::from(flat.f_view([4]).unwrap_err());
        assert!(!is_out_of_memory(&error));
        assert!(
            error
                .to_string()
                .starts_with("libtorch: shape '[4]' is invalid"),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
}
