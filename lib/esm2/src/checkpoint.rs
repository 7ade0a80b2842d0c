//! Hugging Face checkpoints: the only module of the crate that opens files.

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
mod tensor;
mod tensors;
mod torch_file;
mod weight_file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{Outputs, Stop};
use plmkit_cpu::Isa;
use rayon::ThreadPool;

use crate::config::from_shapes;
use crate::cpu::{CpuModel, Layers};
use crate::threads::pool;
use crate::{CheckpointInfo, Dtype, EsmError, Head, ModelConfig};

use cpu_model::cpu_model;
use digest::{digest_of_head, digest_of_model};
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
    read(model, stop, &pool()?, copy)
}

/// Loads the folder or weight file `model` for plmkit's CPU kernels.
pub(crate) fn load_cpu(
    model: &Path,
    kernels: (Isa, Dtype),
    stop: &Stop,
) -> Result<(CheckpointInfo, CpuModel), EsmError> {
    let pool = pool()?;
    read(model, stop, &pool, |tensors| {
        let layers = (0..tensors.config().layers).map(|number| {
            if stop.requested() {
                return Err(EsmError::Stopped);
            }
            pool.install(|| layers::layer(tensors, number, kernels))
        });
        let layers = Layers::Packed(layers.collect::<Result<_, _>>()?);
        cpu_model(tensors, kernels.0, layers)
    })
}

/// Loads the same in f32 for `isa`, except for the layers, which are packed when they are computed.
pub(crate) fn stream(model: &Path, isa: Isa) -> Result<CpuModel, EsmError> {
    let pool = pool()?;
    let files = Arc::new(CheckpointFiles::open(model)?);
    let tensors = files.read()?;
    let (own, config) = (Arc::clone(&files), tensors.config().clone());
    let layers = Layers::Streamed(Box::new(move |number| {
        let tensors = CheckpointTensors::read(&own.weights, &own.folder, |_| Ok(config.clone()))?;
        pool.install(|| layers::layer(&tensors, number, (isa, Dtype::F32)))
    }));
    cpu_model(&tensors, isa, layers)
}

/// Reads a checkpoint: `load` gets its tensors, while the threads of `pool` check and hash them.
fn read<T, E: From<EsmError>>(
    model: &Path,
    stop: &Stop,
    pool: &ThreadPool,
    load: impl FnOnce(&CheckpointTensors<'_>) -> Result<T, E>,
) -> Result<(CheckpointInfo, T), E> {
    let files = CheckpointFiles::open(model).map_err(EsmError::from)?;
    // A wrong checksum explains why something cannot be read.
    let explain = |error| {
        let damage = pool.install(|| files.check_sums(stop)).err();
        EsmError::from(damage.unwrap_or(error))
    };
    let tensors = files.read().map_err(explain)?;
    tensors.report(&files.folder);
    let mut info = Err(EsmError::Stopped);
    let loaded = pool.in_place_scope(|scope| {
        scope.spawn(|_| info = files.describe(&tensors, stop));
        load(&tensors)
    });
    let (loaded, info) = (loaded?, info?);
    let mut weights = files.weights.iter();
    let changed = weights.try_for_each(WeightFile::check_unchanged);
    changed.map_err(EsmError::from)?;
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
    let weights = files.weights.iter();
    let mut paths: Vec<PathBuf> = weights.map(|file| file.path.clone()).collect();
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

    /// Compares all files with the checksums in them.
    fn check_sums(&self, stop: &Stop) -> Result<(), CheckpointError> {
        let mut files = self.weights.iter();
        files.try_for_each(|file| file.check_sums(stop))
    }

    /// Verifies the files, checks that weights are finite, and digests them.
    fn describe(
        &self,
        tensors: &CheckpointTensors<'_>,
        stop: &Stop,
    ) -> Result<CheckpointInfo, EsmError> {
        // Before the check of values: damage explains a bad value.
        self.check_sums(stop)?;
        let digest = digest_of_model(tensors, stop)?;
        let head = |head| {
            let digest = match tensors.refusal_of_head(head) {
                Some(reason) => Err(reason),
                None => Ok(digest_of_head(tensors, head, stop)?),
            };
            Ok::<_, EsmError>((head, digest))
        };
        let heads = [Head::LanguageModel, Head::Contact].map(head);
        Ok(CheckpointInfo {
            config: tensors.config().clone(),
            digest,
            heads: heads.into_iter().collect::<Result<_, _>>()?,
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
        .map_err(|error| CheckpointError::invalid(path, error))
}
