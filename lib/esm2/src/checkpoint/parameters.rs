//! The tensors of an ESM-2: canonical names and shapes.

use plmkit_contract::VOCABULARY;

use crate::{Head, ModelConfig};

/// A tensor that the model has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
}

/// Returns the tensors of the encoder in the order of computation.
pub(super) fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let mut all = vec![parameter(WORDS.to_owned(), &[VOCABULARY, hidden])];
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

/// The word embeddings.
pub const WORDS: &str = "embeddings.word_embeddings.weight";

/// The decoder of the language-model head, if it is not the word embeddings.
pub(super) const DECODER: &str = "lm_head.decoder.weight";

/// The bias of the language-model head, which transformers keeps outside of the decoder.
pub const BIAS: &str = "lm_head.bias";

/// Another name of that bias.
pub(super) const DECODER_BIAS: &str = "lm_head.decoder.bias";

/// Returns the tensors of a decoder that is not the word embeddings.
pub(super) fn decoder_parameters(config: &ModelConfig) -> [Parameter; 2] {
    [
        parameter(DECODER.to_owned(), &[VOCABULARY, config.hidden]),
        parameter(DECODER_BIAS.to_owned(), &[VOCABULARY]),
    ]
}

/// Returns the tensors of a head, which a checkpoint may lack, without those of a decoder of its own.
pub(super) fn head_parameters(config: &ModelConfig, head: Head) -> Vec<Parameter> {
    let hidden = config.hidden;
    let named = |name: &str, shape: &[usize]| parameter(format!("{}.{name}", head.name()), shape);
    match head {
        Head::LanguageModel => vec![
            named("dense.weight", &[hidden, hidden]),
            named("dense.bias", &[hidden]),
            named("layer_norm.weight", &[hidden]),
            named("layer_norm.bias", &[hidden]),
            named("bias", &[VOCABULARY]),
        ],
        Head::Contact => vec![
            named("regression.weight", &[1, config.layers * config.heads]),
            named("regression.bias", &[1]),
        ],
    }
}

/// Returns the canonical name of a layer, counted from 0.
pub fn layer_name(layer: usize) -> String {
    format!("encoder.layer.{layer}")
}

/// Returns the canonical name of a layer's own rotary frequencies, which a checkpoint may lack.
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
