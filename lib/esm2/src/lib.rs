//! ESM-2: configuration, weights, and the model on a CPU or on libtorch.
//!
//! [`Esm2::load`] loads a Hugging Face checkpoint, [`Varlen`] is a checked batch of sequences without padding, and
//! [`Esm2::embed`] computes vectors, logits and contacts of a batch. The model is fair-esm's ESM-2 (Lin et al. 2023,
//! doi:10.1126/science.ade2574).

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
mod buffers;
mod checkpoint;
mod compute_options;
mod config;
mod cpu;
mod device;
mod device_batch;
mod dtype;
mod embedding;
mod error;
mod heads;
mod layer_norm;
mod linear;
mod model;
mod pending;
mod pooling;
mod rope;
mod shim;
mod threads;
mod timing;
mod torch;
mod transfer;
mod varlen;
mod weights;

pub use buffers::{Buffer, Buffers};
pub use checkpoint::CheckpointError;
pub use compute_options::{ComputeOptions, Kernels, ParseKernelsError};
pub use config::{ConfigError, ModelConfig};
pub use device::{
    CUDA_VISIBLE_DEVICES, Device, DeviceError, ParseDeviceError, WorkerGpu, cuda_version,
    driver_version,
};
pub use dtype::Dtype;
pub use error::EsmError;
pub use heads::Head;
pub use model::{Esm2, LoadTimes, Visit};
pub use pending::{ModelOutput, PendingOutput};
pub use plmkit_cpu::Isa;
pub use threads::set_threads;
pub use timing::{DeviceTimes, KernelTimes, Work};
pub use varlen::{Varlen, VarlenError};
