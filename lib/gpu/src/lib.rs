//! CUDA kernels for the operations between the matrix products of ESM models.
//!
//! Rotation, the residual stream with its `LayerNorm`, activations, embedding and pooling are one pass over memory each; a tensor library needs several. The kernels are CUDA C++ (`src/kernels/*.cu`). NVRTC compiles them for the
//! device, and the driver launches them on the caller's stream and memory, which are raw device pointers.
//!
//! Both libraries are loaded at run time, so that the crate builds and links without CUDA. A missing library is an error,
//! never a panic.
//!
//! ```no_run
//! use plmkit_gpu::{Dtype, Kernels, Rope};
//!
//! # fn rotate(stream: *mut std::ffi::c_void, qkv: *mut std::ffi::c_void, positions: *const i32, turns: *const f32)
//! # -> Result<(), plmkit_gpu::GpuError> {
//! let kernels = Kernels::load(0, Dtype::F16)?;
//! let rope = Rope { qkv, positions, turns, tokens: 1_024, heads: 20, head_dim: 32, norm: None };
//! // SAFETY: the pointers are those of tensors of these shapes on device 0, which outlive the work of the stream.
//! unsafe { kernels.run(stream, &rope)? };
//! # Ok(())
//! # }
//! ```

#![allow(
    unsafe_code,
    reason = "CUDA is a C interface with raw pointers; each launch checks shapes and pointers before, and errors after"
)]
#![cfg_attr(
    test,
    allow(
        clippy::float_cmp,
        clippy::cast_possible_wrap,
        clippy::similar_names,
        reason = "tests compare exact values of small shapes"
    )
)]

mod compile;
mod devices;
mod driver;
#[cfg(test)]
#[path = "../tests/emulator/mod.rs"]
mod emulator;
mod error;
mod kernels;
mod launch;
mod launch_arguments;
mod library;
mod nvrtc;
mod source;

pub use compile::{ELEMENTS, Image, compile, element_of};
pub use devices::{Gpu, driver_cuda_version, driver_version, gpus};
pub use error::GpuError;
pub use kernels::{
    AddLayerNorm, BiasGelu, Embed, Kernels, Pool, QuantisedActivation, Rope, RopeNorm, SiluGate,
    Work,
};
pub use nvrtc::load_nvrtc_from;
pub use plmkit_contract::Dtype;
