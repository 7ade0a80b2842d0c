//! Hugging Face checkpoints: the only module of the crate that opens files.

mod checksums;
mod cpu_model;
mod digest;
mod error;
mod finite;
mod folder;
mod foreign;
mod layers;
mod names;
mod parameters;
mod stored_tensor;
mod tasks;
mod tensor;
mod tensors;
mod torch_file;
mod weight_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{Outputs, Stop};
use plmkit_cpu::{Encoder, Isa};

use crate::config::from_shapes;
use crate::cpu::{CpuModel, Layers};
use crate::{CheckpointInfo, Dtype, EsmError, Head, ModelConfig};

use checksums::Checksums;
use cpu_model::cpu_model;
use digest::DigestInput;
pub use error::CheckpointError;
pub use parameters::{BIAS, EMBEDDING_NORM, GATE, POSITIONS, QUERY_KEY_NORMS, WORDS, layer_name};
pub use stored_tensor::StoredTensor;
pub use tensors::CheckpointTensors;
use weight_file::WeightFile;

/// Reads the folder or weight file `model` for something that keeps the weights: `copy` copies them, while other threads hash them
/// and check that they are finite. Returns what `copy` returns.
pub fn read_checkpoint<T, E: From<EsmError>>(
    model: &Path,
    stop: &Stop,
    copy: impl FnOnce(&CheckpointTensors<'_>) -> Result<T, E>,
) -> Result<(CheckpointInfo, T), E> {
    read(model, stop, |tensors, input, checksums| {
        tasks::hash_and_pack(input, checksums, Vec::new(), stop, || copy(tensors))
    })
}

/// Loads the folder or weight file `model` for plmkit's CPU kernels.
pub(crate) fn load_cpu(
    model: &Path,
    kernels: (Isa, Dtype),
    stop: &Stop,
) -> Result<(CheckpointInfo, CpuModel), EsmError> {
    read(model, stop, |tensors, input, checksums| {
        let config = tensors.config();
        let mut layers = (0..config.layers)
            .map(|number| layers::layer(tensors, number, kernels, None))
            .collect::<Result<Vec<_>, _>>()?;
        let jobs = layers.iter_mut().enumerate();
        let jobs = jobs.flat_map(|(number, layer)| layers::jobs(layer, tensors, number));
        let jobs = jobs.collect();
        let (digest, ()) =
            tasks::hash_and_pack(input, checksums, jobs, stop, || Ok::<_, EsmError>(()))?;
        let layers = Layers::Packed(Encoder::new(kernels.0, layers, config.heads));
        Ok((digest, cpu_model(tensors, kernels, layers)?))
    })
}

/// Loads the same in f32 for `isa`, except for the layers, which are packed when they are computed.
pub(crate) fn stream(model: &Path, isa: Isa) -> Result<CpuModel, EsmError> {
    let kernels = (isa, Dtype::F32);
    let files = Arc::new(CheckpointFiles::open(model)?);
    let tensors = files.read()?;
    let (own, config) = (Arc::clone(&files), tensors.config().clone());
    let layers = Layers::Streamed {
        heads: config.heads,
        pack: Box::new(move |number, before| {
            let tensors =
                CheckpointTensors::read(&own.weights, &own.folder, |_| Ok(config.clone()))?;
            let mut layer = layers::layer(&tensors, number, kernels, before)?;
            tasks::pack(layers::jobs(&mut layer, &tensors, number))?;
            Ok(layer)
        }),
    };
    cpu_model(&tensors, kernels, layers)
}

/// Reads a checkpoint: `load` gets its tensors, the input of its digest and the checksums to verify, and returns the digest.
fn read<T, E: From<EsmError>>(
    model: &Path,
    stop: &Stop,
    load: impl FnOnce(
        &CheckpointTensors<'_>,
        &DigestInput<'_>,
        &Checksums<'_>,
    ) -> Result<(String, T), E>,
) -> Result<(CheckpointInfo, T), E> {
    let files = CheckpointFiles::open(model).map_err(EsmError::from)?;
    let checksums = Checksums::collect(&files.weights).map_err(EsmError::from)?;
    // A wrong checksum explains why something cannot be read.
    let explain = |error| EsmError::from(checksums.verify().err().unwrap_or(error));
    let tensors = files.read().map_err(explain)?;
    tensors.report(&files.folder);
    let (digest, loaded) = load(&tensors, &DigestInput::for_model(&tensors), &checksums)?;
    let head = |head| {
        let digest = match tensors.refusal_of_head(head) {
            Some(reason) => Err(reason),
            None => Ok(tasks::hash(&DigestInput::for_head(&tensors, head), stop)?),
        };
        Ok::<_, EsmError>((head, digest))
    };
    let heads = [Head::LanguageModel, Head::Contact].map(head);
    let heads = heads.into_iter().collect::<Result<_, _>>()?;
    let mut weights = files.weights.iter();
    let changed = weights.try_for_each(WeightFile::check_unchanged);
    changed.map_err(EsmError::from)?;
    let info = CheckpointInfo {
        config: tensors.config().clone(),
        digest,
        heads,
    };
    Ok((info, loaded))
}

/// Checks a model before it is used: that its weights have the names and shapes that its `config.json` asks for. Returns its files:
/// weights, then `config.json`. Reads headers only.
///
/// # Errors
/// The model is of another kind, or its weights are missing or have other shapes.
pub fn check_checkpoint(model: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let files = CheckpointFiles::open(model)?;
    files.read()?;
    let mut paths = folder::weight_paths(model)?;
    let config = files.folder.join("config.json");
    paths.extend(config.exists().then_some(config));
    Ok(paths)
}

/// Returns the configuration of a model: that of its weights, checked against them, or that of a folder with a `config.json` alone.
/// Reads headers only.
///
/// # Errors
/// The model cannot be read, or is of another kind.
pub fn read_config(model: &Path) -> Result<ModelConfig, CheckpointError> {
    let config = folder::model_folder(model).join("config.json");
    match CheckpointFiles::open(model) {
        Ok(files) => Ok(files.read()?.config().clone()),
        Err(CheckpointError::NoWeights { .. }) if config.exists() => config_at(&config),
        Err(error) => Err(error),
    }
}

/// Checks that a model has the layers and the heads of these outputs. Reads headers only.
///
/// # Errors
/// The model cannot be read, or it lacks one.
pub fn check_outputs(model: &Path, outputs: &Outputs) -> Result<(), EsmError> {
    let files = CheckpointFiles::open(model)?;
    let tensors = files.read()?;
    let columns = outputs.columns(tensors.config().layers)?;
    let heads = columns.into_iter().filter_map(Head::for_column);
    for head in heads {
        if let Some(reason) = tensors.refusal_of_head(head) {
            let model = model.to_owned();
            return Err(EsmError::NoHead {
                model,
                head,
                reason,
            });
        }
    }
    Ok(())
}

/// The memory-mapped files of a checkpoint.
#[derive(Debug)]
struct CheckpointFiles {
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
    fn read(&self) -> Result<CheckpointTensors<'_>, CheckpointError> {
        let path = self.folder.join("config.json");
        let config = |stored: &[(&str, &[usize])]| match from_shapes(stored) {
            Some(config) => Ok(config),
            None => config_at(&path),
        };
        CheckpointTensors::read(&self.weights, &self.folder, config)
    }
}

/// Reads a `config.json`.
fn config_at(path: &Path) -> Result<ModelConfig, CheckpointError> {
    ModelConfig::from_json(&folder::read_json(path)?)
        .map_err(|error| CheckpointError::invalid(path, error.to_string()))
}
