//! Hugging Face checkpoints: the only module of the crate that opens files.

mod assemble;
mod checksums;
mod cpu_model;
mod digest;
mod error;
mod finite;
mod folder;
mod frequencies;
mod layers;
mod names;
mod parameters;
mod stored;
mod tasks;
mod tensor;
mod torch_file;
mod weight_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plmkit_contract::{Stop, path_text};
use plmkit_cpu::{Encoder, Isa, Layer, Multiply};

use crate::compute_options::ComputePlan;
use crate::cpu::{CpuModel, Layers};
use crate::heads::HeadDigests;
use crate::model::Compute;
use crate::shim::cuda_memory;
use crate::torch::TorchModel;
use crate::{Device, DeviceError, EsmError, Head, ModelConfig};

use assemble::Assembly;
use checksums::Checksums;
use cpu_model::cpu_model;
use digest::DigestInput;
pub use error::CheckpointError;
use stored::StoredTensors;
use weight_file::WeightFile;

/// A loaded checkpoint.
pub(crate) struct Checkpoint {
    pub(crate) config: ModelConfig,
    /// See [`Esm2::digest`](crate::Esm2::digest).
    pub(crate) digest: String,
    pub(crate) heads: HeadDigests,
    pub(crate) compute: Compute,
    /// The time to compile kernels for a GPU.
    pub(crate) compiled: Option<Duration>,
}

/// Loads the folder or weight file `model` to the device of `plan`.
pub(crate) fn load(
    model: &Path,
    plan: ComputePlan,
    profile: bool,
    stop: &Stop,
) -> Result<Checkpoint, EsmError> {
    let files = CheckpointFiles::open(model)?;
    let checksums = Checksums::collect(&files.weights)?;
    // A wrong checksum explains why something cannot be read.
    let explain = |error| checksums.verify().err().unwrap_or(error);
    let (stored, config) = files.read().map_err(explain)?;
    check_memory(&config, plan)?;
    if stored.has_classifier() {
        let folder = path_text(&files.folder);
        tracing::info!("{folder}: its classifier is not used");
    }
    let frequencies =
        frequencies::read_frequencies(&files.folder, &config, &stored).map_err(explain)?;
    let input = DigestInput::for_model(&config, &stored, &frequencies);
    let (digest, heads, compute, compiled) = if let Some(isa) = plan.own {
        let kernels = (isa, plan.multiply());
        let layers = frequencies.into_iter().enumerate();
        let layers = layers.map(|(number, inv_freq)| {
            layers::layer(&config, &stored, number, inv_freq, kernels, None)
        });
        let mut layers = layers.collect::<Result<Vec<_>, _>>()?;
        let jobs = layers.iter_mut().enumerate();
        let jobs = jobs.flat_map(|(number, layer)| layers::jobs(layer, &config, &stored, number));
        let jobs = jobs.collect();
        let (digest, ()) = tasks::hash_and_pack(&input, &checksums, jobs, stop, || Ok(()))?;
        let heads = head_digests(&config, &stored, stop)?;
        let layers = Layers::Packed(Encoder::new(isa, layers, config.heads));
        let model = cpu_model(&config, &stored, &heads, kernels, layers)?;
        (digest, heads, Compute::Cpu(Box::new(model)), None)
    } else {
        TorchModel::set_loading_threads();
        let _no_grad = tch::no_grad_guard();
        let assembly = Assembly::new(&config, &stored, plan.device, stop);
        let (digest, (body, compiled)) =
            tasks::hash_and_pack(&input, &checksums, Vec::new(), stop, || {
                assembly.body(frequencies, plan)
            })?;
        let heads = head_digests(&config, &stored, stop)?;
        let weights = assembly.weights(body, &heads)?;
        let shape = (config.layers, config.hidden);
        let model = TorchModel::new(weights, shape, (plan.device, profile))?;
        (digest, heads, Compute::Torch(Box::new(model)), compiled)
    };
    files
        .weights
        .iter()
        .try_for_each(WeightFile::check_unchanged)?;
    Ok(Checkpoint {
        config,
        digest,
        heads,
        compute,
        compiled,
    })
}

/// Hashes the heads of a checkpoint.
fn head_digests(
    config: &ModelConfig,
    stored: &StoredTensors<'_>,
    stop: &Stop,
) -> Result<HeadDigests, EsmError> {
    let digest = |head| match stored.refusal_of_head(config, head) {
        Some(reason) => Ok(Err(reason)),
        None => tasks::hash(&DigestInput::for_head(config, stored, head), stop).map(Ok),
    };
    Ok(HeadDigests {
        language_model: digest(Head::LanguageModel)?,
        contact: digest(Head::Contact)?,
    })
}

/// Loads the same in f32 for `isa`, except for the layers, which are packed when they are computed.
pub(crate) fn stream(model: &Path, isa: Isa, stop: &Stop) -> Result<CpuModel, EsmError> {
    let files = Arc::new(CheckpointFiles::open(model)?);
    let (stored, config) = files.read()?;
    let frequencies = frequencies::read_frequencies(&files.folder, &config, &stored)?;
    let heads = head_digests(&config, &stored, stop)?;
    let layers = Layers::Streamed {
        config: config.clone(),
        frequencies,
        files: Arc::clone(&files),
    };
    cpu_model(&config, &stored, &heads, (isa, Multiply::F32), layers)
}

/// The memory-mapped files of a checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointFiles {
    folder: PathBuf,
    weights: Vec<WeightFile>,
}

impl CheckpointFiles {
    fn open(model: &Path) -> Result<Self, CheckpointError> {
        Ok(Self {
            weights: folder::weight_files(model)?,
            folder: folder::model_folder(model).to_owned(),
        })
    }

    /// Returns the tensors and the configuration, checked against each other.
    fn read(&self) -> Result<(StoredTensors<'_>, ModelConfig), CheckpointError> {
        // Weights first: missing weights, or those of fair-esm, explain a missing config.json.
        let mut stored = StoredTensors::open(&self.weights)?;
        let path = self.folder.join("config.json");
        let config = ModelConfig::from_json(&folder::read_json(&path)?)
            .map_err(|error| CheckpointError::invalid(&path, error.to_string()))?;
        stored.check(&self.folder, &config)?;
        stored.settle_decoder(&config);
        Ok((stored, config))
    }

    /// Packs a layer of a model of `config`, in the memory of the layer `before`.
    pub(crate) fn layer(
        &self,
        config: &ModelConfig,
        number: usize,
        inv_freq: Vec<f32>,
        kernels: (Isa, Multiply),
        before: Option<Layer>,
    ) -> Result<Layer, EsmError> {
        let stored = StoredTensors::open(&self.weights)?;
        stored.check(&self.folder, config)?;
        let mut layer = layers::layer(config, &stored, number, inv_freq, kernels, before)?;
        let jobs = layers::jobs(&mut layer, config, &stored, number);
        tasks::pack(jobs, &Stop::default())?;
        Ok(layer)
    }
}

/// Checks that the weights fit in the device memory if nothing else uses it.
fn check_memory(config: &ModelConfig, plan: ComputePlan) -> Result<(), EsmError> {
    let tch::Device::Cuda(index) = plan.device else {
        return Ok(());
    };
    let total = cuda_memory(index)?;
    let values = config.layers * config.hidden * (4 * config.hidden + 2 * config.intermediate);
    let needed = values * plan.dtype.kind().elt_size_in_bytes();
    if needed < total {
        return Ok(());
    }
    Err(DeviceError::TooSmall {
        device: Device::Cuda(index),
        total,
        needed,
    }
    .into())
}
