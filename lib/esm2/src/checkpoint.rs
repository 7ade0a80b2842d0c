//! Hugging Face checkpoints: the only place of the crate that opens files.

mod assemble;
mod checksums;
mod digest;
mod error;
mod finite;
mod folder;
mod frequencies;
mod layers;
mod mapped;
mod names;
mod parameters;
mod stored;
mod tensor;
mod torch_file;
mod upload;
mod work;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plmkit_contract::Stop;
use plmkit_cpu::{Isa, Layer, Multiply};

use crate::body::{Body, OnCpu, Streamed};
use crate::compute_options::ComputePlan;
use crate::shim::cuda_memory;
use crate::weights::Weights;
use crate::{Device, DeviceError, EsmError, ModelConfig};

use assemble::Assembly;
use checksums::Checksums;
use digest::DigestInput;
pub use error::{CheckpointError, Names};
use folder::WeightFile;
use stored::Stored;
pub use torch_file::TorchFileError;

/// What a checkpoint folder holds.
pub(crate) struct Checkpoint {
    pub(crate) config: ModelConfig,
    /// See [`Esm2::digest`](crate::Esm2::digest).
    pub(crate) digest: String,
    pub(crate) weights: Weights,
    /// The time in which kernels for a GPU were compiled.
    pub(crate) compiled: Option<Duration>,
}

/// Reads the folder or weight file `model` and puts the weights on a device, those of the layers as `method` says.
pub(crate) fn load(model: &Path, method: ComputePlan, stop: &Stop) -> Result<Checkpoint, EsmError> {
    let mapped = Mapped::open(model)?;
    let checksums = Checksums::collect(&mapped.files)?;
    // What cannot be read may be what was damaged.
    let damaged = |error| checksums.verify().err().unwrap_or(error);
    let (stored, config) = mapped.read().map_err(damaged)?;
    check_memory(&config, method)?;
    let frequencies =
        frequencies::read_frequencies(&mapped.folder, &config, &stored).map_err(damaged)?;
    let input = DigestInput::for_model(&config, &stored, &frequencies);
    let assembly = Assembly::new(&config, &stored, method.device, stop);
    let (digest, (body, compiled)) = if let Some(isa) = method.own {
        let multiply = method.multiply();
        let layers = frequencies.into_iter().enumerate();
        let layers = layers.map(|(number, inv_freq)| {
            layers::layer(&config, &stored, number, inv_freq, (isa, multiply))
        });
        let mut layers = layers.collect::<Result<Vec<_>, _>>()?;
        let jobs = layers.iter_mut().enumerate();
        let jobs = jobs.flat_map(|(number, layer)| layers::jobs(layer, &config, &stored, number));
        let jobs = jobs.collect();
        let (digest, ()) = work::hash_and_pack(&input, &checksums, jobs, stop, || Ok(()))?;
        let body: Box<dyn Body> = Box::new(OnCpu::new(isa, multiply, layers, config.heads));
        (digest, (body, None))
    } else {
        work::hash_and_pack(&input, &checksums, Vec::new(), stop, || {
            assembly.body(frequencies, method)
        })?
    };
    let weights = assembly.weights(body)?;
    mapped.files.iter().try_for_each(WeightFile::unchanged)?;
    Ok(Checkpoint {
        config,
        digest,
        weights,
        compiled,
    })
}

/// Reads the same for `isa` and f32, but for the layers, which are read when they are computed.
pub(crate) fn stream(model: &Path, isa: Isa, stop: &Stop) -> Result<Weights, EsmError> {
    let mapped = Arc::new(Mapped::open(model)?);
    let (stored, config) = mapped.read()?;
    let frequencies = frequencies::read_frequencies(&mapped.folder, &config, &stored)?;
    let body = Streamed::new(isa, Arc::clone(&mapped), config.clone(), frequencies);
    Assembly::new(&config, &stored, tch::Device::Cpu, stop).weights(Box::new(body))
}

/// The files of a checkpoint as memory maps.
#[derive(Debug)]
pub(crate) struct Mapped {
    folder: PathBuf,
    files: Vec<WeightFile>,
}

impl Mapped {
    fn open(model: &Path) -> Result<Self, CheckpointError> {
        Ok(Self {
            files: folder::weight_files(model)?,
            folder: folder::model_folder(model).to_owned(),
        })
    }

    /// The tensors, and the configuration that they were checked against.
    fn read(&self) -> Result<(Stored<'_>, ModelConfig), CheckpointError> {
        // Weights first: where there are none, or fair-esm's, that says more than an absent config.json.
        let stored = Stored::open(&self.folder, &self.files)?;
        let config = read_config(&self.folder.join("config.json"))?;
        stored.check(&self.folder, &config)?;
        Ok((stored, config))
    }

    /// A layer of a model of `config`, packed.
    pub(crate) fn layer(
        &self,
        config: &ModelConfig,
        number: usize,
        inv_freq: Vec<f32>,
        kernels: (Isa, Multiply),
    ) -> Result<Layer, EsmError> {
        let stored = Stored::open(&self.folder, &self.files)?;
        stored.check(&self.folder, config)?;
        let mut layer = layers::layer(config, &stored, number, inv_freq, kernels)?;
        let jobs = layers::jobs(&mut layer, config, &stored, number);
        work::pack(jobs, &Stop::default())?;
        Ok(layer)
    }
}

/// That the weights are smaller than the memory of the device. Whether they fit beside what else is there is seen later.
fn check_memory(config: &ModelConfig, method: ComputePlan) -> Result<(), EsmError> {
    let tch::Device::Cuda(index) = method.device else {
        return Ok(());
    };
    let total = cuda_memory(index)?;
    let values = config.layers * config.hidden * (4 * config.hidden + 2 * config.intermediate);
    let needed = values * method.dtype.kind().elt_size_in_bytes();
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

fn read_config(path: &Path) -> Result<ModelConfig, CheckpointError> {
    let json = read_json(path)?;
    ModelConfig::from_json(&json).map_err(|source| CheckpointError::Config {
        path: path.to_owned(),
        source,
    })
}

/// The bytes of a JSON file of a checkpoint. The index of the 15B model has 100 KiB.
fn read_json(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    const LIMIT: u64 = 16 << 20;
    let mut json = Vec::new();
    mapped::open(path)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut json))
        .map_err(|source| CheckpointError::Open {
            path: path.to_owned(),
            source,
        })?;
    if json.len() as u64 > LIMIT {
        return Err(CheckpointError::TooLarge {
            path: path.to_owned(),
            limit: LIMIT,
        });
    }
    Ok(json)
}
