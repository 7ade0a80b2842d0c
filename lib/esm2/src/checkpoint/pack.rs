//! Packs stored tensors for plmkit's CPU kernels.

use std::cell::RefCell;

use plmkit_contract::Dtype;
use plmkit_cpu::{
    ContactHead, Embedding, Isa, LanguageModelHead, Layer, LayerNorm, OutOfMemory, Readout, Weights,
};
use rayon::prelude::*;

use super::parameters::{
    BIAS, EMBEDDING_NORM, POSITIONS, QKV, QUERY_KEY_NORMS, WORDS, feed_forward_inputs, layer_name,
};
use super::tensors::CheckpointTensors;
use crate::config::Positions;
use crate::cpu::{CpuModel, Layers};
use crate::error::EsmError;
use crate::heads::Head;
use crate::rope::unpaired;

/// Returns a model of `layers`, with the heads that the checkpoint has.
pub(super) fn cpu_model(
    tensors: &CheckpointTensors,
    isa: Isa,
    layers: Layers,
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
        layers,
        readout,
        encoder: RefCell::default(),
    })
}

/// Returns the `LayerNorm` of a module.
fn layer_norm(tensors: &CheckpointTensors, module: &str) -> LayerNorm {
    LayerNorm {
        weight: tensors.get(&format!("{module}.weight")).values(),
        bias: tensors.bias(module, tensors.config().hidden),
        eps: tensors.config().layer_norm_eps as f32,
    }
}

/// Packs a layer, on the threads of the current pool.
pub(super) fn layer(
    tensors: &CheckpointTensors,
    number: usize,
    isa: Isa,
    dtype: Dtype,
) -> Result<Layer, EsmError> {
    let config = tensors.config();
    let layer = layer_name(number);
    let norm = |module: &str| layer_norm(tensors, &format!("{layer}.{module}"));
    // Packs the matrices of modules, one below the other. The channels of the first `paired` are paired for the rotation.
    let dense = |modules: &[&str], paired: usize| -> Result<Weights, EsmError> {
        let matrix = |module: &&str| tensors.get(&format!("{layer}.{module}.weight"));
        let matrices: Vec<_> = modules.iter().map(matrix).collect();
        let &[height, inputs] = matrices[0].shape() else {
            unreachable!("shapes were checked");
        };
        let stored: Vec<_> = matrices.iter().map(|matrix| matrix.bytes()).collect();
        // The stored row, counted over all matrices, of an output.
        let place = |output: usize| match output / height {
            number if number < paired => unpaired(output, config.head_dim()),
            _ => output,
        };
        let biases = modules.iter();
        let biases = biases.flat_map(|module| tensors.bias(&format!("{layer}.{module}"), height));
        let biases: Vec<f32> = biases.collect();
        let biases = (0..biases.len()).map(|output| match dtype {
            // Biases have the type of the weights.
            Dtype::Bf16 => half::bf16::from_f32(biases[place(output)]).to_f32(),
            _ => biases[place(output)],
        });
        let mut weights = Weights::zeros(isa, dtype, inputs, &biases.collect::<Vec<_>>())?;
        if modules.len() == 2 {
            weights = weights.gated();
        }
        weights.panels().into_par_iter().for_each(|mut panel| {
            let rows = panel.outputs().map(place).map(|row| {
                let (matrix, row) = (row / height, row % height);
                let dtype = matrices[matrix].stored_type();
                let width = inputs * dtype.bytes();
                (dtype, &stored[matrix][row * width..][..width])
            });
            panel.pack(&rows.collect::<Vec<_>>());
        });
        for matrix in matrices {
            matrix.release();
        }
        Ok(weights)
    };
    let paired = |values: &[f32]| {
        let rows = 0..values.len();
        rows.map(|row| values[unpaired(row, config.head_dim())])
            .collect()
    };
    let paired_norm = |module: &str| {
        let LayerNorm { weight, bias, eps } = norm(module);
        let (weight, bias) = (paired(&weight), paired(&bias));
        LayerNorm { weight, bias, eps }
    };
    let query_key_norms = || QUERY_KEY_NORMS.map(paired_norm);
    Ok(Layer {
        attention_norm: norm("attention.LayerNorm"),
        qkv: dense(&QKV, 2)?,
        query_key_norms: config.architecture.query_key_norm.then(query_key_norms),
        inv_freq: tensors.frequencies(number),
        out: dense(&["attention.output.dense"], 0)?,
        ffn_norm: norm("LayerNorm"),
        up: dense(feed_forward_inputs(config), 0)?,
        down: dense(&["output.dense"], 0)?,
        branch_scale: config.branch_scale() as f32,
    })
}
