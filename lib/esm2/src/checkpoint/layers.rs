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
