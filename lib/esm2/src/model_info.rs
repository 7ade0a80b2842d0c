//! The facts about a loaded model.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use plmkit_contract::{Column, Dtype, SPECIAL_TOKENS, no_such_layer};
use plmkit_cpu::Isa;
use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::cuda::interface::OpeningGpu;
use crate::error::EsmError;
use crate::heads::Head;

/// What a checkpoint is, beside its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    pub config: ModelConfig,
    /// BLAKE3, 128 bits in hexadecimal, of everything in the checkpoint that a vector depends on: the configuration, and the stored
    /// encoder weights with their canonical names. It does not depend on the number of files and on heads. A model cast to another
    /// type has another digest.
    pub digest: String,
    /// BLAKE3 of the stored tensors of each head. For a head that cannot be computed, the reason.
    pub heads: BTreeMap<Head, Result<String, String>>,
}

/// The facts about a loaded model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    pub checkpoint: CheckpointInfo,
    /// The device: `cpu` or `cuda:0`.
    pub device: String,
    /// The GPU's name and total memory in bytes; `None` on a CPU.
    pub gpu: Option<(String, usize)>,
    /// The type of the weights in memory, in which the model is fastest.
    pub dtype: Dtype,
    /// What computes the layers: an instruction set of plmkit's CPU kernels, `cuda` or `libtorch`.
    pub kernels: String,
    /// How long loading took.
    pub load_times: LoadTimes,
}

/// Times of loading a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadTimes {
    /// The total: opening the device, reading, hashing, packing or copying weights, and the times below.
    pub all: Duration,
    /// Compiling kernels for a GPU, if any.
    pub compiled: Option<Duration>,
    /// Page-locking host memory for batches, if any.
    pub pinned: Option<Duration>,
}

impl ModelInfo {
    /// Returns what to know of a model in f32 on a CPU where another type is much faster.
    pub fn hint(&self) -> Option<&'static str> {
        let in_f32 = Isa::best().for_weights(Dtype::F32).to_string();
        let has_tiles =
            Isa::best() == Isa::Amx && (self.dtype, &self.kernels) == (Dtype::F32, &in_f32);
        has_tiles.then_some(
            "this CPU multiplies tiles (AMX): --dtype bf16 is about 6 times as fast here; \
             its vectors differ from those in f32, by cosines of 1e-5 to 1e-4",
        )
    }

    /// The facts about a model on a GPU with its memory in bytes, or on a CPU. Loading has taken no time.
    pub fn new(
        checkpoint: CheckpointInfo,
        gpu: Option<(OpeningGpu, usize)>,
        dtype: Dtype,
        kernels: String,
    ) -> Self {
        let device = gpu.as_ref();
        Self {
            checkpoint,
            device: device.map_or("cpu".to_owned(), |(gpu, _)| format!("cuda:{}", gpu.index)),
            gpu: gpu.map(|(gpu, memory)| (gpu.name, memory)),
            dtype,
            kernels,
            load_times: LoadTimes::default(),
        }
    }

    pub fn config(&self) -> &ModelConfig {
        &self.checkpoint.config
    }

    /// The kind of device, without its number: `cpu`, `cuda`.
    pub fn device_kind(&self) -> &str {
        self.device.split(':').next().unwrap_or(&self.device)
    }

    /// Returns the digest of each head that `columns` need. `model` is the checkpoint, for the error of one that has no such head.
    pub fn heads_for(
        &self,
        model: &Path,
        columns: &[Column],
    ) -> Result<BTreeMap<Head, &str>, EsmError> {
        let heads = columns.iter().copied().filter_map(Head::for_column);
        let digest = |head: Head| match &self.checkpoint.heads[&head] {
            Ok(digest) => Ok((head, digest.as_str())),
            Err(reason) => Err(EsmError::invalid(model, format!("has no {head}; {reason}"))),
        };
        heads.map(digest).collect()
    }

    /// Checks that the model has a position for each of the `tokens` of a sequence. `model` is the checkpoint, for the error.
    pub fn check_length(&self, model: &Path, tokens: usize) -> Result<(), EsmError> {
        match self.config().longest() {
            Some(longest) if tokens > longest => {
                let [longest, found] = [longest, tokens].map(|all| all - SPECIAL_TOKENS as usize);
                let reason = format!(
                    "takes at most {longest} residues, found a row of {found}; expected shards by fasta-shard \
                     --max-residues {longest}, with --long-policy truncate or window for longer proteins"
                );
                Err(EsmError::invalid(model, reason))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of layers that `columns` need; `None` without columns.
    pub(crate) fn depth(&self, columns: &[Column]) -> Result<Option<usize>, EsmError> {
        let layers = self.config().layers;
        let depth = columns.iter().map(|column| column.depth(layers)).max();
        match depth {
            Some(layer) if layer > layers => {
                let layer = i64::try_from(layer).unwrap_or(i64::MAX);
                Err(no_such_layer(layer, layers).into())
            }
            depth => Ok(depth),
        }
    }
}
