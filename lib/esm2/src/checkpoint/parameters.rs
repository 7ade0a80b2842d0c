//! The tensors of a model: canonical names and shapes.

use crate::config::Positions;
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
    let of = &config.architecture;
    let mut all = vec![parameter(WORDS.to_owned(), &[config.vocabulary, hidden])];
    if let Positions::Learned { first, longest } = of.positions {
        all.push(parameter(POSITIONS.to_owned(), &[first + longest, hidden]));
    }
    let mut add = |module: String, weight: &[usize], bias: bool| {
        all.push(parameter(format!("{module}.weight"), weight));
        if bias {
            all.push(parameter(format!("{module}.bias"), &weight[..1]));
        }
    };
    if of.embedding_norm {
        add(EMBEDDING_NORM.to_owned(), &[hidden], true);
    }
    for layer in 0..config.layers {
        let layer = layer_name(layer);
        let (attention, bias) = (format!("{layer}.attention"), of.dense_bias);
        add(format!("{attention}.LayerNorm"), &[hidden], true);
        for projection in ["query", "key", "value"] {
            add(
                format!("{attention}.self.{projection}"),
                &[hidden, hidden],
                bias,
            );
        }
        if of.query_key_norm {
            for norm in QUERY_KEY_NORMS {
                add(format!("{layer}.{norm}"), &[hidden], false);
            }
        }
        add(format!("{attention}.output.dense"), &[hidden, hidden], bias);
        add(format!("{layer}.LayerNorm"), &[hidden], true);
        if config.is_gated() {
            add(format!("{layer}.{GATE}"), &[intermediate, hidden], bias);
        }
        add(
            format!("{layer}.intermediate.dense"),
            &[intermediate, hidden],
            bias,
        );
        add(
            format!("{layer}.output.dense"),
            &[hidden, intermediate],
            bias,
        );
    }
    add(
        "encoder.emb_layer_norm_after".to_owned(),
        &[hidden],
        of.final_norm_bias,
    );
    all
}

/// The vectors of positions.
pub const POSITIONS: &str = "embeddings.position_embeddings.weight";

/// The normalisation of the embedding.
pub const EMBEDDING_NORM: &str = "embeddings.layer_norm";

/// The gate of a layer's feed-forward network.
pub const GATE: &str = "intermediate.gate";

/// The normalisations of a layer's queries and keys.
pub const QUERY_KEY_NORMS: [&str; 2] = ["attention.self.query_norm", "attention.self.key_norm"];

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
        parameter(DECODER.to_owned(), &[config.vocabulary, config.hidden]),
        parameter(DECODER_BIAS.to_owned(), &[config.vocabulary]),
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
            named("bias", &[config.vocabulary]),
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
