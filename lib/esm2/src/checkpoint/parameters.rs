//! The tensors of a model: canonical names and shapes.

use super::names::SHARED_INV_FREQ;
use crate::config::{ModelConfig, Positions};
use crate::heads::Head;

/// The vectors of positions.
pub const POSITIONS: &str = "embeddings.position_embeddings.weight";

/// The normalisation of the embedding.
pub const EMBEDDING_NORM: &str = "embeddings.layer_norm";

/// Queries, keys and values of a layer.
pub const QKV: [&str; 3] = [
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
];

/// The normalisations of a layer's queries and keys.
pub const QUERY_KEY_NORMS: [&str; 2] = ["attention.self.query_norm", "attention.self.key_norm"];

pub const WORDS: &str = "embeddings.word_embeddings.weight";

/// The decoder of the language-model head, if it is not the word embeddings.
pub(super) const DECODER: &str = "lm_head.decoder.weight";

/// The bias of the language-model head, which transformers keeps outside of the decoder.
pub const BIAS: &str = "lm_head.bias";

/// Another name of that bias.
pub(super) const DECODER_BIAS: &str = "lm_head.decoder.bias";

/// Adds the weight of a module and its bias, if it has one.
fn add(all: &mut Vec<(String, Vec<usize>)>, module: &str, weight: &[usize], bias: bool) {
    all.push((format!("{module}.weight"), weight.to_vec()));
    if bias {
        all.push((format!("{module}.bias"), weight[..1].to_vec()));
    }
}

/// Returns names and shapes of the tensors of the encoder, in the order of computation.
pub(super) fn parameters(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let (of, bias) = (&config.architecture, config.architecture.dense_bias);
    let mut all = vec![(WORDS.to_owned(), vec![config.vocabulary, hidden])];
    if let Positions::Learned { first, longest } = of.positions {
        all.push((POSITIONS.to_owned(), vec![first + longest, hidden]));
    }
    if of.embedding_norm {
        add(&mut all, EMBEDDING_NORM, &[hidden], true);
    }
    for layer in 0..config.layers {
        let layer = layer_name(layer);
        let mut add = |module: &str, weight: &[usize], bias: bool| {
            add(&mut all, &format!("{layer}.{module}"), weight, bias);
        };
        add("attention.LayerNorm", &[hidden], true);
        for projection in QKV {
            add(projection, &[hidden, hidden], bias);
        }
        if of.query_key_norm {
            for norm in QUERY_KEY_NORMS {
                add(norm, &[hidden], false);
            }
        }
        add("attention.output.dense", &[hidden, hidden], bias);
        add("LayerNorm", &[hidden], true);
        for input in feed_forward_inputs(config) {
            add(input, &[intermediate, hidden], bias);
        }
        add("output.dense", &[hidden, intermediate], bias);
    }
    let last = "encoder.emb_layer_norm_after";
    add(&mut all, last, &[hidden], of.final_norm_bias);
    all
}

/// Returns the tensors of a head, which a checkpoint may lack. `own_decoder` tells whether it decodes with a matrix of its own.
pub(super) fn head_parameters(
    config: &ModelConfig,
    head: Head,
    own_decoder: bool,
) -> Vec<(String, Vec<usize>)> {
    let (hidden, vocabulary) = (config.hidden, config.vocabulary);
    let mut all = Vec::new();
    match head {
        Head::LanguageModel => {
            add(&mut all, "lm_head.dense", &[hidden, hidden], true);
            add(&mut all, "lm_head.layer_norm", &[hidden], true);
            all.push((BIAS.to_owned(), vec![vocabulary]));
            if own_decoder {
                all.push((DECODER.to_owned(), vec![vocabulary, hidden]));
            }
        }
        Head::Contact => {
            let weight = [1, config.layers * config.heads];
            add(&mut all, "contact_head.regression", &weight, true);
        }
    }
    all
}

/// Returns all tensors that a checkpoint may lack.
pub(super) fn optional_parameters(config: &ModelConfig) -> Vec<(String, Vec<usize>)> {
    let mut all = head_parameters(config, Head::LanguageModel, true);
    all.extend(head_parameters(config, Head::Contact, false));
    all.push((DECODER_BIAS.to_owned(), vec![config.vocabulary]));
    if config.architecture.positions == Positions::StoredRotary {
        let names = (0..config.layers).flat_map(frequency_names);
        all.extend(names.map(|name| (name, vec![config.head_dim() / 2])));
    }
    all
}

/// Returns the dense layers at the input of a layer's feed-forward network: its gate, if it has one, and the other.
pub fn feed_forward_inputs(config: &ModelConfig) -> &'static [&'static str] {
    let both = &["intermediate.gate", "intermediate.dense"];
    if config.is_gated() { both } else { &both[1..] }
}

/// Returns the canonical name of a layer, counted from 0.
pub fn layer_name(layer: usize) -> String {
    format!("encoder.layer.{layer}")
}

/// Returns the canonical names of a layer's rotary frequencies: its own, and those that all layers share.
pub(super) fn frequency_names(layer: usize) -> [String; 2] {
    let own = format!(
        "{}.attention.self.rotary_embeddings.inv_freq",
        layer_name(layer)
    );
    [own, SHARED_INV_FREQ.to_owned()]
}
