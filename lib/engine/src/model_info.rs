//! Facts about a loaded model, which workers send to their run.

use std::collections::BTreeMap;

use plmkit_contract::{EmbeddingLayout, Labels, Outputs};
use plmkit_esm2::{Dtype, Esm2, EsmError, LoadTimes};
use serde::{Deserialize, Serialize};

use crate::RunConfig;

/// Facts about a loaded model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelInfo {
    /// Layers of the encoder.
    pub(crate) layers: usize,
    /// Values in a vector.
    pub(crate) dim: usize,
    /// [`Esm2::digest`].
    pub(crate) digest: String,
    /// Digests by name of the heads that the requested outputs need.
    pub(crate) heads: BTreeMap<String, String>,
    /// The device: `cpu`, `cuda:0`.
    pub(crate) device: String,
    /// The type of the computation.
    pub(crate) dtype: Dtype,
    /// The kernels of the layers.
    pub(crate) kernels: String,
    /// [`plmkit_contract::ModelShape::flops_per_token`].
    pub(crate) flops_per_token: u64,
    /// [`plmkit_contract::ModelShape::flops_per_pair`].
    pub(crate) flops_per_pair: u64,
    /// How long loading took.
    pub(crate) load_times: LoadTimes,
}

impl ModelInfo {
    /// Describes `model`. Fails if the model cannot compute `outputs`.
    pub(crate) fn new(model: &Esm2, outputs: &Outputs) -> Result<Self, EsmError> {
        let layers = model.config().layers;
        let mut heads = BTreeMap::new();
        for head in model.heads_for(&outputs.columns(layers)?) {
            let digest = model.head_digest(head)?.to_owned();
            heads.insert(head.name().to_owned(), digest);
        }
        Ok(Self {
            layers,
            dim: model.config().hidden,
            digest: model.digest().to_owned(),
            heads,
            device: model.device(),
            dtype: model.dtype(),
            kernels: model.kernels(),
            flops_per_token: model.config().shape().flops_per_token(),
            flops_per_pair: model.config().shape().flops_per_pair(),
            load_times: model.load_times(),
        })
    }

    /// The kind of device, without its number: `cpu`, `cuda`.
    pub(crate) fn device_kind(&self) -> &str {
        self.device.split(':').next().unwrap_or(&self.device)
    }

    /// Whether another worker loaded the same model in the same type on a device of the same kind.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let other_here = Self {
            device: self.device.clone(),
            load_times: self.load_times,
            ..other.clone()
        };
        *self == other_here && self.device_kind() == other.device_kind()
    }

    /// The columns of the output that `config` requests.
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
