//! A model of plmkit's CPU kernels from stored tensors.

use std::cell::RefCell;

use plmkit_cpu::{
    ContactHead, Embedding, Isa, LanguageModelHead, Layer, LayerNorm, OutOfMemory, Readout, Weights,
};

use super::CheckpointTensors;
use super::parameters::{BIAS, EMBEDDING_NORM, POSITIONS, WORDS};
use crate::config::Positions;
use crate::cpu::{CpuModel, Layers};
use crate::{Dtype, EsmError, Head};

/// Returns a model of `layers`, with the heads that the checkpoint has.
pub(super) fn cpu_model(
    tensors: &CheckpointTensors,
    isa: Isa,
    layers: Vec<Layer>,
) -> Result<CpuModel, EsmError> {
    let (config, of) = (tensors.config(), &tensors.config().architecture);
    let values = |name: &str| tensors.get(name).values();
    let norm = |module: &str| layer_norm(tensors, module);
    let language_model = || -> Result<_, OutOfMemory> {
        let pack = |weight: &str, bias: &str| {
            Weights::pack(isa, Dtype::F32, &values(weight), &values(bias))
        };
        Ok(LanguageModelHead {
            dense: pack("lm_head.dense.weight", "lm_head.dense.bias")?,
            norm: norm("lm_head.layer_norm"),
            decoder: pack(tensors.decoder(), BIAS)?,
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
        language_model: tensors
            .has(Head::LanguageModel)
            .then(language_model)
            .transpose()?,
        contact: tensors.has(Head::Contact).then(contact),
    };
    let mut embedding = Embedding::new(isa, values(WORDS), config.hidden, config.token_dropout);
    if let Positions::Learned { first, .. } = of.positions {
        embedding.positions = Some(values(POSITIONS).split_off(first * config.hidden));
    }
    embedding.norm = of.embedding_norm.then(|| norm(EMBEDDING_NORM));
    Ok(CpuModel {
        embedding,
        layers: Layers::Packed(layers),
        readout,
        encoder: RefCell::default(),
    })
}

/// Returns the `LayerNorm` of a module.
pub(super) fn layer_norm(tensors: &CheckpointTensors, module: &str) -> LayerNorm {
    LayerNorm {
        weight: tensors.get(&format!("{module}.weight")).values(),
        bias: tensors.bias(module, tensors.config().hidden),
        eps: tensors.config().layer_norm_eps as f32,
    }
}
