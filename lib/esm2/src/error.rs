//! Errors of loading and computing.

use std::path::PathBuf;

use plmkit_contract::{Exit, Failure, NoSuchLayer, path_text};
use plmkit_cpu::ForwardError;
use plmkit_gpu::GpuError;
use tch::TchError;

use crate::{CheckpointError, DeviceError, Dtype, Head};

/// Why a model cannot be loaded or a batch cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum EsmError {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model does not have a layer.
    #[error(transparent)]
    NoSuchLayer(#[from] NoSuchLayer),
    /// The checkpoint has no head that an output needs, or one that cannot be computed.
    #[error("{}: has no {head}; {reason}", path_text(.model))]
    NoHead {
        /// The checkpoint.
        model: PathBuf,
        /// The head.
        head: Head,
        /// What was expected.
        reason: String,
    },
    /// The device or the kernels do not compute in a type.
    #[error("--dtype {dtype}: not computed {place}; expected {known}")]
    NoSuchDtype {
        /// The type.
        dtype: Dtype,
        /// The device, and the kernels if they were selected.
        place: String,
        /// The types in which they compute, for a message.
        known: String,
    },
    /// Memory is full. A smaller batch may fit.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A stop was requested.
    #[error("stopped")]
    Stopped,
    /// One of plmkit's GPU kernels could not be compiled or launched.
    #[error("GPU: {0}")]
    Gpu(GpuError),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(String),
}

impl EsmError {
    /// Whether smaller batches may succeed.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory(_))
    }
}

impl Failure for EsmError {
    fn exit(&self) -> Exit {
        match self {
            Self::Checkpoint(error) => error.exit(),
            Self::Device(error) => error.exit(),
            Self::NoSuchLayer(_) | Self::NoSuchDtype { .. } => Exit::Usage,
            Self::NoHead { .. } => Exit::Data,
            Self::OutOfMemory(_) | Self::Stopped => Exit::Transient,
            Self::Gpu(_) | Self::Torch(_) => Exit::Internal,
        }
    }
}

impl From<GpuError> for EsmError {
    fn from(error: GpuError) -> Self {
        if error.is_out_of_memory() {
            Self::OutOfMemory(error.to_string())
        } else {
            Self::Gpu(error)
        }
    }
}

impl From<plmkit_cpu::OutOfMemory> for EsmError {
    fn from(error: plmkit_cpu::OutOfMemory) -> Self {
        Self::OutOfMemory(error.to_string())
    }
}

impl From<ForwardError> for EsmError {
    fn from(error: ForwardError) -> Self {
        match error {
            ForwardError::OutOfMemory(error) => error.into(),
            ForwardError::Stopped => Self::Stopped,
        }
    }
}

impl From<TchError> for EsmError {
    fn from(error: TchError) -> Self {
        let text = match error {
            TchError::Torch(text) => text,
            other => other.to_string(),
        };
        // The lines after the first are a C++ backtrace.
        Self::from_libtorch_message(text.lines().next().unwrap_or_default().to_owned())
    }
}

impl EsmError {
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
        if OUT_OF_MEMORY.iter().any(|words| line.contains(words)) {
            Self::OutOfMemory(line)
        } else {
            Self::Torch(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    #[test]
    fn an_allocation_that_cannot_succeed_is_out_of_memory() {
        let too_much = Tensor::f_empty([1 << 50], (Kind::Float, Device::Cpu)).unwrap_err();
        let error = EsmError::from(too_much);
        assert!(error.is_out_of_memory(), "{error}");
        assert_eq!(error.exit(), Exit::Transient);
        assert!(!error.to_string().contains('\n'));
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
            let error = EsmError::from_libtorch_message(line.to_owned());
            assert_eq!(error.is_out_of_memory(), out_of_memory, "{line}");
        }
    }

    #[test]
    fn a_refused_operation_is_one_line() {
        let flat = Tensor::f_zeros([6], (Kind::Float, Device::Cpu)).unwrap();
        let error = EsmError::from(flat.f_view([4]).unwrap_err());
        assert!(!error.is_out_of_memory());
        assert!(
            error
                .to_string()
                .starts_with("libtorch: shape '[4]' is invalid"),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
}
