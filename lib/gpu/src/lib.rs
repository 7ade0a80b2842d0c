//! CUDA kernels for what lies between the matrix products of ESM-2.
//!
//! Rotation, the residual stream with its `LayerNorm`, bias with GELU, embedding and pooling each are one pass over
//! memory here, where a library of tensor operations takes several. The kernels are CUDA C++ (`src/kernels/*.cu`),
//! compiled by NVRTC for the device that is there, and launched through the driver on the caller's stream, on the
//! caller's memory: raw device pointers, from whatever owns tensors.
//!
//! Both libraries are looked for at run time, so that the crate builds and links without CUDA. What is missing is an
//! error and never a panic.
//!
//! ```no_run
//! use plmkit_gpu::{Element, Kernels, Rope};
//!
//! # fn rotate(stream: *mut std::ffi::c_void, qkv: *mut std::ffi::c_void, positions: *const i32, turns: *const f32)
//! # -> Result<(), plmkit_gpu::GpuError> {
//! let kernels = Kernels::load(0, Element::F16)?;
//! let rope = Rope { qkv, positions, turns, tokens: 1_024, heads: 20, head_dim: 32 };
//! // SAFETY: the pointers are of tensors of these shapes on device 0, which outlive the work of the stream.
//! unsafe { kernels.rope(stream, &rope)? };
//! # Ok(())
//! # }
//! ```

#![allow(
    unsafe_code,
    reason = "CUDA is a C interface on raw pointers; each call checks its shapes and pointers first, and errors after"
)]
#![cfg_attr(
    test,
    allow(
        clippy::float_cmp,
        clippy::cast_possible_wrap,
        clippy::similar_names,
        reason = "tests ask for exact values of small shapes"
    )
)]

mod check;
mod compile;
mod driver;
mod element;
#[cfg(test)]
mod emulator;
mod error;
mod kernels;
mod launch;
mod library;
mod nvrtc;
mod source;

pub use compile::{Architecture, Image, compile};
pub use element::Element;
pub use error::GpuError;
pub use kernels::{AddLayerNorm, BiasGelu, Embed, Kernels, Pool, Pooling, Rope};
pub use library::{DRIVER, open_driver};
pub use nvrtc::load_nvrtc_from;
