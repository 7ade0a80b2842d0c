//! ESM-2 and its relatives: configuration, weights, and the model on a CPU, or in the library that computes on a GPU.
//!
//! [`Esm2::load`] loads a Hugging Face checkpoint, [`Varlen`] is a checked batch of sequences without padding, and
//! [`Esm2::embed`] computes vectors, logits and contacts of a batch. The models are fair-esm's ESM-2 (Lin et al. 2023,
//! doi:10.1126/science.ade2574), ESM-1b and ESM-1v, and ESM Cambrian: see [`Architecture`].

#![cfg_attr(
    test,
    allow(
        clippy::float_cmp,
        reason = "these tests compare values that are exact"
    )
)]

mod buffers;
mod checkpoint;
mod compute_options;
mod config;
mod cpu;
mod cpu_rate;
pub mod cuda;
mod device;
mod error;
mod gpus;
mod heads;
mod model;
mod model_info;
mod pass;
mod rope;
mod thread_pool;
mod timing;
mod varlen;

pub use buffers::{Buffer, Buffers};
pub use checkpoint::{
    BIAS, CheckpointTensors, EMBEDDING_NORM, POSITIONS, QKV, QUERY_KEY_NORMS, StoredTensor, WORDS,
    feed_forward_inputs, layer_name, read_checkpoint, read_config,
};
pub use compute_options::{ComputeOptions, Kernels, check_widths};
pub use config::{Architecture, FeedForward, ModelConfig, Positions};
pub use cpu_rate::cpu_rate;
pub use cuda::Ticket;
pub use device::Device;
pub use error::{EsmError, ON_THE_CPU};
pub use gpus::{CUDA_VISIBLE_DEVICES, WorkerGpu, cuda_version, driver_version};
pub use heads::Head;
pub use model::{Esm2, describe};
pub use model_info::{CheckpointInfo, LoadTimes, ModelInfo};
pub use pass::Pass;
pub use plmkit_contract::Dtype;
pub use plmkit_cpu::{CPU_DTYPES, Isa};
pub use thread_pool::set_threads;
pub use timing::{DeviceTimes, KernelKind, KernelTimes};
pub use varlen::Varlen;
