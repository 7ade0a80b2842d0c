//! ESM-2 on libtorch: on a GPU with plmkit's kernels between matrix products and attention, or on a CPU for tests.
//!
//! `gpu-embed` opens this crate as `libplmkit_cuda.so` when a GPU computes. [`exports`](self) are the functions of
//! [`plmkit_esm2::cuda`]; everything else is behind them:
//!
//! ```text
//! open ──▶ checkpoint ─────────┐
//! submit ──▶ device_batch ──▶ model: embedding, encoder, heads, pooling ──▶ transfer
//! collect ◀────────────────────────────────────────────────────────────────────┘
//! ```

#![allow(
    clippy::cast_possible_wrap,
    reason = "libtorch counts in i64, and every size is that of something in memory"
)]
#![cfg_attr(
    test,
    allow(
        clippy::float_cmp,
        reason = "these tests compare values that are exact"
    )
)]

mod attention;
mod checkpoint;
mod device_batch;
mod embedding;
mod encoder;
mod error;
mod exports;
mod fp8;
mod heads;
mod layer_norm;
mod libtorch;
mod linear;
mod memory;
mod model;
mod pooling;
mod rope;
mod shim;
mod timing;
mod transfer;

use error::CudaError;
