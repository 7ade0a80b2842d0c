//! CPU kernels of a transformer: matrix products, attention and the operations in between, for each instruction set.
//!
//! A kernel is a generic function over a trait of vector operations. It is compiled for AVX-512, AVX2, NEON and any CPU, and selected
//! at run time; AMX multiplies tiles of matrices beside AVX-512, SMMLA and BFMMLA smaller ones beside NEON. Results are
//! batch-invariant to the bit: a row depends only on itself, and in attention on its sequence.
//!
//! `encoder.rs` runs the layers of a batch, `columns.rs` makes the vectors of it that are stored, and `plmkit-esm2` calls both.

#![allow(
    unsafe_code,
    reason = "the compiler cannot check vector instructions and tiles of matrices; each kernel checks its shapes first"
)]
#![allow(
    clippy::inline_always,
    clippy::missing_safety_doc,
    clippy::wildcard_imports,
    clippy::missing_panics_doc,
    reason = "generic kernels must be inlined into the function that is compiled for their instructions"
)]
#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(
        dead_code,
        reason = "only tests use tiles there, with a model of their instructions"
    )
)]
#![cfg_attr(
    test,
    allow(
        clippy::float_cmp,
        reason = "these tests compare values that are exact"
    )
)]

mod activation;
mod aligned;
mod amx;
mod attention;
mod columns;
mod cpu;
mod dot;
mod embedding;
mod encoder;
mod exp;
mod heads;
mod isa;
mod layer_norm;
mod linear;
mod pooling;
mod power_table;
mod rope;
mod rows;
mod simd;
mod team;
mod tile;

pub use aligned::OutOfMemory;
pub use attention::{AttentionHead, Scratch, attention};
pub use columns::{Collector, ForwardError, Readout};
pub use embedding::{Embedding, MASKED_IN_TRAINING, share_kept};
pub use encoder::{Encoder, Layer};
pub use heads::{ContactHead, LanguageModelHead};
pub use isa::Isa;
pub use layer_norm::LayerNorm;
pub use linear::{CPU_DTYPES, Converted, Epilogue, Panel, Weights, product_error, widen};
pub use plmkit_contract::Dtype;
pub use rope::Rotations;
pub use rows::{Rows, RowsMut};
