//! A model of plmkit's CPU kernels from stored tensors.

use plmkit_cpu::{
    ContactHead, Embedding, Isa, LanguageModelHead, LayerNorm, Multiply, OutOfMemory,
};
use plmkit_cpu::{Readout, Weights};

use super::parameters::{BIAS, DECODER, WORDS};
use super::stored::StoredTensors;
use crate::cpu::{CpuModel, Layers};
use crate::heads::HeadDigests;
use crate::{EsmError, ModelConfig};

/// Returns a model of `layers`, with the heads that have a digest.
pub(super) fn cpu_model(
    config: &ModelConfig,
    stored: &StoredTensors<'_>,
    heads: &HeadDigests,
    (isa, multiply): (Isa, Multiply),
    layers: Layers,
) -> Result<CpuModel, EsmError> {
    let values = |name: &str| stored.get(name).values();
    let norm = |module: &str| LayerNorm {
        weight: values(&format!("{module}.weight")),
        bias: values(&format!("{module}.bias")),
        eps: config.layer_norm_eps as f32,
    };
    let language_model = || -> Result<_, OutOfMemory> {
        let pack = |weight: &str, bias: &str| {
            Weights::pack(isa, Multiply::F32, &values(weight), &values(bias))
        };
        let decoder = if stored.has_own_decoder() {
            DECODER
        } else {
            WORDS
        };
        Ok(LanguageModelHead {
            dense: pack("lm_head.dense.weight", "lm_head.dense.bias")?,
            norm: norm("lm_head.layer_norm"),
            decoder: pack(decoder, BIAS)?,
        })
    };
    let contact = || ContactHead {
        weight: values("contact_head.regression.weight"),
        bias: values("contact_head.regression.bias")[0],
    };
    let readout = Readout {
        isa,
        layers: config.layers,
        heads: config.heads,
        final_norm: norm("encoder.emb_layer_norm_after"),
        language_model: heads
            .language_model
            .is_ok()
            .then(language_model)
            .transpose()?,
        contact: heads.contact.is_ok().then(contact),
    };
    let embedding = Embedding::new(values(WORDS), config.hidden, config.token_dropout);
    Ok(CpuModel::new(embedding, multiply, layers, readout))
}
