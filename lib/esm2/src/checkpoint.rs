//! Hugging Face checkpoints: the only module of the crate that opens files.

mod digest;
mod folder;
mod foreign;
mod format;
mod names;
mod pack;
mod parameters;
mod stored_tensor;
mod tensors;
mod tokens;
mod torch_file;
mod weight_file;

use std::path::Path;

use plmkit_contract::{Dtype, seal};
use plmkit_cpu::Isa;
use plmkit_kit::{Exit, Stop};
use rayon::ThreadPool;

use crate::config::ModelConfig;
use crate::cpu::{CpuModel, Layers};
use crate::cuda::interface::Note;
use crate::error::EsmError;
use crate::model_info::CheckpointInfo;
use crate::thread_pool::pool;

use digest::digest;
use pack::{cpu_model, layer};
pub use parameters::{
    BIAS, EMBEDDING_NORM, POSITIONS, QKV, QUERY_KEY_NORMS, WORDS, feed_forward_inputs, layer_name,
};
pub use stored_tensor::StoredTensor;
pub use tensors::CheckpointTensors;

/// Reads the folder or weight file `model` for something that keeps the weights: `copy` copies them, while the threads of the pool hash
/// them and check that they are finite, unless `known`, a text of `identify`, tells of these files. Returns what `copy` returns.
pub fn read_checkpoint<T, E: From<EsmError>>(
    model: &Path,
    known: &str,
    stop: &Stop,
    copy: impl FnOnce(&CheckpointTensors, &ThreadPool) -> Result<T, E>,
) -> Result<(CheckpointInfo, T), E> {
    let (pool, tensors) = (pool()?, CheckpointTensors::open(model)?);
    tensors.notes().iter().for_each(Note::log);
    let mut info = Err(EsmError::Stopped);
    let copied = pool.in_place_scope(|scope| {
        scope.spawn(|_| info = digest(&tensors, known, stop));
        copy(&tensors, &pool)
    });
    let (copied, known) = (copied?, info?);
    tensors.check_unchanged()?;
    Ok((known.checkpoint, copied))
}

/// Returns what a checkpoint is, beside its weights, and a text that tells it while the files are the same. Hashes the files, unless
/// `known` is such a text.
pub(crate) fn identify(
    model: &Path,
    known: &str,
    stop: &Stop,
) -> Result<(CheckpointInfo, String), EsmError> {
    let tensors = CheckpointTensors::open(model)?;
    let known = pool()?.install(|| digest(&tensors, known, stop))?;
    tensors.check_unchanged()?;
    Ok((known.checkpoint.clone(), seal(&known)))
}

/// Loads the folder or weight file `model` for plmkit's CPU kernels.
pub(crate) fn load_cpu(
    model: &Path,
    isa: Isa,
    dtype: Dtype,
    known: &str,
    stop: &Stop,
) -> Result<(CheckpointInfo, CpuModel), EsmError> {
    read_checkpoint(model, known, stop, |tensors, pool| {
        let layers = (0..tensors.config().layers).map(|number| {
            if stop.requested() {
                return Err(EsmError::Stopped);
            }
            pool.install(|| layer(tensors, number, isa, dtype))
        });
        let layers = Layers::Packed(layers.collect::<Result<_, _>>()?);
        cpu_model(tensors, isa, layers)
    })
}

/// Loads the same in f32 for `isa`, except for the layers, which are packed when they are computed.
pub(crate) fn stream(model: &Path, isa: Isa) -> Result<CpuModel, EsmError> {
    let (pool, tensors) = (pool()?, CheckpointTensors::open(model)?);
    let mut model = cpu_model(&tensors, isa, Layers::Packed(Vec::new()))?;
    let packed = move |number| pool.install(|| layer(&tensors, number, isa, Dtype::F32));
    model.layers = Layers::Stored(Box::new(packed));
    Ok(model)
}

/// Returns the configuration of a model: that of its weights, checked against them, or that of a folder with a `config.json` alone.
/// Reads headers only.
///
/// # Errors
/// The model cannot be read, or is of another kind.
pub fn read_config(model: &Path) -> Result<ModelConfig, EsmError> {
    let config = folder::model_folder(model).join("config.json");
    match CheckpointTensors::open(model) {
        Ok(tensors) => Ok(tensors.config().clone()),
        Err(EsmError::Refused(fault)) if fault.exit() == Exit::NoInput && config.exists() => {
            folder::read_config(&config)
        }
        Err(error) => Err(error),
    }
}
