//! ESM-2 on libtorch: on a GPU with plmkit's kernels between matrix products and attention, or on a CPU for tests.
//!
//! `gpu-embed` opens this crate as `libplmkit_cuda.so` when a GPU computes. [`exports`](self) are the functions of
//! [`plmkit_esm2::cuda`]; everything else is behind them:
//!
//! ```text
//! open ──▶ checkpoint ──▶ weights ─┐
//! submit ──▶ device_batch ──▶ model: embedding, body (layers), heads, pooling ──▶ transfer
//! collect ◀────────────────────────────────────────────────────────── pending ◀──┘
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
mod body;
mod checkpoint;
mod device_batch;
mod embedding;
mod error;
mod exports;
mod heads;
mod kind;
mod layer_norm;
mod libtorch;
mod linear;
mod memory;
mod model;
mod notes;
mod pending;
mod pooling;
mod rope;
mod shim;
mod timing;
mod transfer;
mod weights;

use error::CudaError;
