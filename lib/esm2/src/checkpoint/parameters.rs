//! The tensors of an ESM-2: canonical names and shapes.

use crate::Config;
use crate::vocabulary::VOCABULARY;

/// A tensor that the encoder cannot do without.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
}

/// All of them, in the order in which they take part in the computation.
pub(super) fn parameters(config: &Config) -> Vec<Parameter> {
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let mut all = vec![parameter(
        "embeddings.word_embeddings.weight".to_owned(),
        &[VOCABULARY, hidden],
    )];
    let mut pair = |module: String, weight: &[usize]| {
        all.push(parameter(format!("{module}.weight"), weight));
        all.push(parameter(format!("{module}.bias"), &weight[..1]));
    };
    for layer in 0..config.layers {
        let layer = layer_name(layer);
        pair(format!("{layer}.attention.LayerNorm"), &[hidden]);
        for projection in ["query", "key", "value"] {
            pair(
                format!("{layer}.attention.self.{projection}"),
                &[hidden, hidden],
            );
        }
        pair(format!("{layer}.attention.output.dense"), &[hidden, hidden]);
        pair(format!("{layer}.LayerNorm"), &[hidden]);
        pair(
            format!("{layer}.intermediate.dense"),
            &[intermediate, hidden],
        );
        pair(format!("{layer}.output.dense"), &[hidden, intermediate]);
    }
    pair("encoder.emb_layer_norm_after".to_owned(), &[hidden]);
    all
}

/// The canonical name of a layer, counted from 0.
pub(super) fn layer_name(layer: usize) -> String {
    format!("encoder.layer.{layer}")
}

/// The canonical name of a layer's own rotary frequencies, which a checkpoint may lack.
pub(super) fn inv_freq_name(layer: usize) -> String {
    format!(
        "{}.attention.self.rotary_embeddings.inv_freq",
        layer_name(layer)
    )
}

fn parameter(name: String, shape: &[usize]) -> Parameter {
    Parameter {
        name,
        shape: shape.to_vec(),
    }
}
