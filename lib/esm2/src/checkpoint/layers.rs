//! Packs stored layers for plmkit's CPU kernels.

use plmkit_cpu::{Isa, Layer, LayerNorm, Weights};
use rayon::prelude::*;

use super::CheckpointTensors;
use super::cpu_model::layer_norm;
use super::parameters::{QKV, QUERY_KEY_NORMS, feed_forward_inputs, layer_name};
use crate::rope::unpaired;
use crate::{Dtype, EsmError};

/// Packs a layer, on the threads of the current pool.
pub(crate) fn layer(
    tensors: &CheckpointTensors,
    number: usize,
    (isa, dtype): (Isa, Dtype),
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
        let bytes: Vec<_> = matrices.iter().map(|matrix| matrix.bytes()).collect();
        // The bytes of a row of a matrix.
        let row = |number: usize, row: usize| {
            let stored = matrices[number].stored_type();
            let width = inputs * stored.bytes();
            (stored, &bytes[number][row * width..][..width])
        };
        let place = |output: usize| match (output / height, output % height) {
            (number, row) if number < paired => (number, unpaired(row, config.head_dim())),
            place => place,
        };
        let stored: Vec<_> = modules
            .iter()
            .map(|module| tensors.bias(&format!("{layer}.{module}"), height))
            .collect();
        let outputs = 0..height * modules.len();
        let biases = outputs.map(place).map(|(number, row)| match dtype {
            // Biases have the type of the weights.
            Dtype::Bf16 => half::bf16::from_f32(stored[number][row]).to_f32(),
            _ => stored[number][row],
        });
        let mut weights = Weights::zeros(isa, dtype, inputs, &biases.collect::<Vec<_>>())?;
        if modules.len() == 2 {
            weights = weights.gated();
        }
        weights.panels().into_par_iter().for_each(|mut panel| {
            let rows = panel.outputs().map(place);
            let rows = rows.map(|(number, place)| row(number, place));
            panel.pack(&rows.collect::<Vec<_>>());
        });
        matrices.iter().for_each(|matrix| matrix.release());
        Ok(weights)
    };
    let paired_norm = |module: &str| {
        let paired = |values: &[f32]| {
            let rows = 0..values.len();
            let rows = rows.map(|row| values[unpaired(row, config.head_dim())]);
            rows.collect()
        };
        let norm = norm(module);
        LayerNorm {
            weight: paired(&norm.weight),
            bias: paired(&norm.bias),
            ..norm
        }
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
