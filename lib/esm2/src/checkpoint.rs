//! Hugging Face checkpoints: the only place of the crate that opens files.

mod assemble;
mod digest;
mod error;
mod folder;
mod frequencies;
mod mapped;
mod names;
mod parameters;
mod stored;
mod tensor;
mod torch_file;

use std::io::Read;
use std::path::Path;

use plmkit_contract::Stop;

use crate::setup::Method;
use crate::shim::cuda_memory;
use crate::weights::Weights;
use crate::{Config, Device, DeviceError, EsmError};

pub use error::{CheckpointError, Names};
pub use torch_file::TorchFileError;

/// What a checkpoint folder holds.
pub(crate) struct Checkpoint {
    pub(crate) config: Config,
    /// See [`Esm2::digest`](crate::Esm2::digest).
    pub(crate) digest: String,
    pub(crate) weights: Weights,
}

/// Reads the folder or weight file `model` and puts the weights on a device, those of the layers as `method` says.
pub(crate) fn load(model: &Path, method: Method, stop: &Stop) -> Result<Checkpoint, EsmError> {
    // Weights first: where there are none, or fair-esm's, that says more than an absent config.json.
    let files = folder::weight_files(model)?;
    let folder = folder::of(model);
    let stored = stored::Stored::of(folder, &files)?;
    let config = read_config(&folder.join("config.json"))?;
    stored.check(folder, &config)?;
    check_memory(&config, method)?;
    let frequencies = frequencies::of_layers(folder, &config, &stored)?;
    Ok(Checkpoint {
        digest: digest::digest(&config, &stored, &frequencies, stop)?,
        weights: assemble::weights(&config, &stored, frequencies, method, stop)?,
        config,
    })
}

/// That the weights are smaller than the memory of the device. Whether they fit beside what else is there is seen later.
fn check_memory(config: &Config, method: Method) -> Result<(), EsmError> {
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

fn read_config(path: &Path) -> Result<Config, CheckpointError> {
    let json = read_json(path)?;
    Config::from_json(&json).map_err(|source| CheckpointError::Config {
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
