//! What a run has to know of a model, wherever it is loaded.

use std::collections::BTreeMap;

use plmkit_contract::{EmbeddingLayout, Labels};
use plmkit_esm2::{Dtype, Esm2, EsmError, LoadTimes};
use serde::{Deserialize, Serialize};

use crate::{Outputs, RunConfig};

/// A loaded model, without the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelInfo {
    /// Layers of the encoder.
    pub(crate) layers: usize,
    /// Values in a vector.
    pub(crate) dim: usize,
    /// What [`Esm2::digest`] says.
    pub(crate) digest: String,
    /// The digests of the heads that the run's outputs are computed with, by name.
    pub(crate) heads: BTreeMap<String, String>,
    /// Where it computes: `cpu`, `cuda:0`.
    pub(crate) device: String,
    /// In what it computes.
    pub(crate) dtype: Dtype,
    /// What computes the layers.
    pub(crate) kernels: String,
    /// What [`plmkit_esm2::ModelConfig::flops_per_token`] says.
    pub(crate) flops_per_token: u64,
    /// What [`plmkit_esm2::ModelConfig::flops_per_pair`] says.
    pub(crate) flops_per_pair: u64,
    /// How long loading took.
    pub(crate) load_times: LoadTimes,
}

impl ModelInfo {
    /// Those of `model`, of which `outputs` are wanted, or why it cannot compute them.
    pub(crate) fn new(model: &Esm2, outputs: &Outputs) -> Result<Self, EsmError> {
        let layers = model.config().layers;
        let heads = model.heads_for(&outputs.columns(layers)?);
        let digest = |head: plmkit_esm2::Head| {
            Ok((head.name().to_owned(), model.head_digest(head)?.to_owned()))
        };
        Ok(Self {
            layers,
            dim: model.config().hidden,
            digest: model.digest().to_owned(),
            heads: heads
                .into_iter()
                .map(digest)
                .collect::<Result<_, EsmError>>()?,
            device: model.device(),
            dtype: model.dtype(),
            kernels: model.kernels().to_owned(),
            flops_per_token: model.config().flops_per_token(),
            flops_per_pair: model.config().flops_per_pair(),
            load_times: model.load_times(),
        })
    }

    /// The kind of device, without its number: `cpu`, `cuda`.
    pub(crate) fn device_kind(&self) -> &str {
        self.device.split(':').next().unwrap_or(&self.device)
    }

    /// Whether another model is the same one in the same type, on the same device or another of the kind.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let there = Self {
            device: self.device.clone(),
            load_times: self.load_times,
            ..other.clone()
        };
        *self == there && self.device_kind() == other.device_kind()
    }

    /// The columns of the output that `config` asks for.
    pub(crate) fn layout(
        &self,
        config: &RunConfig,
        (stitched, labels): (bool, Labels),
    ) -> Result<EmbeddingLayout, EsmError> {
        Ok(EmbeddingLayout {
            columns: config.outputs.columns(self.layers)?,
            dim: self.dim,
            dtype: config.store_dtype,
            stitched,
            labels,
        })
    }
}
