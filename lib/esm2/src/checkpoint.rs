//! Hugging Face checkpoints: the only module of the crate that opens files.

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

use plmkit_contract::{Stop, path_text};
use plmkit_cpu::{Encoder, Isa, Multiply};
use serde::{Deserialize, Serialize};

use crate::cpu::{CpuModel, Layers, PackLayer};
use crate::heads::HeadDigests;
use crate::{EsmError, Head, ModelConfig};

use checksums::Checksums;
use cpu_model::cpu_model;
use digest::DigestInput;
pub use error::CheckpointError;
use parameters::DECODER;
pub use parameters::{BIAS, WORDS, layer_name};
pub use stored::StoredTensor;
use stored::StoredTensors;
use weight_file::WeightFile;

/// What a checkpoint is, beside its weights.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckpointFacts {
    /// Its sizes.
    pub config: ModelConfig,
    /// See [`Esm2::digest`](crate::Esm2::digest).
    pub digest: String,
    /// The digests of its heads.
    pub heads: HeadDigests,
}

/// The tensors of a checkpoint, checked against its configuration.
pub struct CheckpointTensors<'a> {
    config: ModelConfig,
    stored: StoredTensors<'a>,
    /// The rotary frequencies of each layer.
    frequencies: Vec<Vec<f32>>,
    /// The layers whose frequencies are not stored.
    computed_frequencies: usize,
}

impl<'a> CheckpointTensors<'a> {
    /// Logs what is not as in a published ESM-2.
    fn report(&self, folder: &Path) {
        let folder = path_text(folder);
        if self.stored.has_classifier() {
            tracing::info!("{folder}: its classifier is not used");
        }
        if self.computed_frequencies > 0 {
            tracing::warn!(
                "{folder}: no inv_freq for {} of {} layers: computed them; the published ESM-2 have theirs rounded to f16, \
                 which shifts the vectors of long sequences",
                self.computed_frequencies,
                self.config.layers,
            );
        }
    }

    /// Returns the sizes of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the rotary frequencies of each layer, `(head_dim/2)` f32.
    pub fn frequencies(&self) -> &[Vec<f32>] {
        &self.frequencies
    }

    /// Returns a tensor of the encoder, or of a head that the checkpoint [has](Self::has), by its canonical name.
    pub fn get(&self, name: &str) -> &StoredTensor<'a> {
        self.stored.get(name)
    }

    /// Whether a head can be computed.
    pub fn has(&self, head: Head) -> bool {
        self.stored.refusal_of_head(&self.config, head).is_none()
    }

    /// Returns the name of the matrix with which the language-model head decodes: [`WORDS`], or one of its own.
    pub fn decoder(&self) -> &'static str {
        if self.stored.has_own_decoder() {
            DECODER
        } else {
            WORDS
        }
    }
}

/// Reads the folder or weight file `model` for something that keeps the weights: `copy` copies them, while other threads hash them
/// and check that they are finite. Returns what `copy` returns.
pub fn read_checkpoint<T, E: From<EsmError>>(
    model: &Path,
    stop: &Stop,
    copy: impl FnOnce(&CheckpointTensors<'_>) -> Result<T, E>,
) -> Result<(CheckpointFacts, T), E> {
    read(model, stop, |tensors, input, checksums| {
        tasks::hash_and_pack(input, checksums, Vec::new(), stop, || copy(tensors))
    })
}

/// Loads the folder or weight file `model` for plmkit's CPU kernels.
pub(crate) fn load_cpu(
    model: &Path,
    kernels: (Isa, Multiply),
    stop: &Stop,
) -> Result<(CheckpointFacts, CpuModel), EsmError> {
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
    let kernels = (isa, Multiply::F32);
    let files = Arc::new(CheckpointFiles::open(model)?);
    let tensors = files.read()?;
    let (own, config) = (Arc::clone(&files), tensors.config.clone());
    let frequencies = tensors.frequencies.clone();
    let layers = Layers::Streamed {
        heads: config.heads,
        pack: PackLayer(Box::new(move |number, before| {
            let stored = StoredTensors::open(&own.weights)?;
            stored.check(&own.folder, &config)?;
            let tensors = CheckpointTensors {
                config: config.clone(),
                stored,
                frequencies: frequencies.clone(),
                computed_frequencies: 0,
            };
            let mut layer = layers::layer(&tensors, number, kernels, before)?;
            tasks::pack(layers::jobs(&mut layer, &tensors, number))?;
            Ok(layer)
        })),
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
) -> Result<(CheckpointFacts, T), E> {
    let files = CheckpointFiles::open(model).map_err(EsmError::from)?;
    let checksums = Checksums::collect(&files.weights).map_err(EsmError::from)?;
    // A wrong checksum explains why something cannot be read.
    let explain = |error| EsmError::from(checksums.verify().err().unwrap_or(error));
    let tensors = files.read().map_err(explain)?;
    tensors.report(&files.folder);
    let CheckpointTensors {
        config,
        stored,
        frequencies,
        ..
    } = &tensors;
    let input = DigestInput::for_model(config, stored, frequencies);
    let (digest, loaded) = load(&tensors, &input, &checksums)?;
    let heads = head_digests(config, stored, stop)?;
    let changed = files
        .weights
        .iter()
        .try_for_each(WeightFile::check_unchanged);
    changed.map_err(EsmError::from)?;
    let facts = CheckpointFacts {
        config: config.clone(),
        digest,
        heads,
    };
    Ok((facts, loaded))
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

/// Checks a model before it is used: that its weights have the names and shapes that its `config.json` asks for. Returns its files:
/// weights, then `config.json`. Reads headers only.
///
/// # Errors
/// The model is of another kind, or its weights are missing or have other shapes.
pub fn check_checkpoint(model: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let files = CheckpointFiles::open(model)?;
    files.read()?;
    let mut paths = folder::weight_paths(model)?;
    paths.push(files.folder.join("config.json"));
    Ok(paths)
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
        // Weights first: missing weights, or those of fair-esm, explain a missing config.json.
        let mut stored = StoredTensors::open(&self.weights)?;
        let path = self.folder.join("config.json");
        let config = ModelConfig::from_json(&folder::read_json(&path)?)
            .map_err(|error| CheckpointError::invalid(&path, error.to_string()))?;
        stored.check(&self.folder, &config)?;
        stored.settle_decoder(&config);
        let (frequencies, computed) = frequencies::read_frequencies(&config, &stored)?;
        Ok(CheckpointTensors {
            config,
            stored,
            frequencies,
            computed_frequencies: computed,
        })
    }
}
