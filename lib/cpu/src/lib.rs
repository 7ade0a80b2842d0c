//! What a transformer computes on a CPU: matrix products, attention and what lies between, for each instruction set.
//!
//! Every kernel is one generic function over a trait of vector operations, compiled for AVX-512, for AVX2 and for any CPU, and
//! chosen at run time. What comes out for a row depends on that row (in attention, on its sequence) and on nothing that lies
//! beside it, to the bit.

#![allow(
    unsafe_code,
    reason = "vector instructions and tiles of matrices are outside of what the compiler can check; each kernel checks its shapes first"
)]
#![allow(
    clippy::inline_always,
    clippy::missing_safety_doc,
    clippy::wildcard_imports,
    clippy::missing_panics_doc,
    reason = "generic kernels must be inlined into the function that is compiled for their instructions"
)]

mod activation;
mod aligned;
mod attention;
mod dispatch;
mod dot;
mod encoder;
mod exp;
mod isa;
mod layer_norm;
mod linear;
mod rope;
mod rows;
mod shared;
mod simd;
mod team;
mod tile;

pub use aligned::{Aligned, OutOfMemory};
pub use attention::{Head, Scratch, attention};
pub use encoder::{Encoder, Layer, LayerObserver};
pub use isa::Isa;
pub use layer_norm::LayerNorm;
pub use linear::{Converted, Multiply, Panel, StoredType, Then, Weights};
pub use rope::Rotations;
pub use rows::{Rows, RowsMut};
