//! ESM Cambrian: `model_type` `esmc`, and the first release, which has no `config.json`.

use plmkit_contract::ModelShape;

use super::esm::token_names;
use super::{Architecture, Entries, FeedForward, ModelConfig, Positions};

/// Channels of a head in the first release.
const HEAD_DIM: usize = 64;
/// Rows of the word embeddings. Only the first 33 have a token.
const VOCABULARY: usize = 64;
/// The layers at which a branch is not scaled, as in ESM-3.
const UNSCALED_DEPTH: u32 = 36;

const ARCHITECTURE: Architecture = Architecture {
    positions: Positions::ComputedRotary,
    embedding_norm: false,
    query_key_norm: true,
    feed_forward: FeedForward::SwiGlu,
    dense_bias: false,
    final_norm_bias: false,
    branch_depth: Some(UNSCALED_DEPTH),
};

pub(super) fn read(entries: &Entries) -> Result<ModelConfig, String> {
    entries.must_be("vocab_size", VOCABULARY, false)?;
    let most = ModelShape::MOST;
    // The second names are those of the first checkpoints.
    let count = |keys: [&str; 2], most: u32| {
        let [key, earlier] = keys;
        let is_earlier = entries.get(key).is_null() && !entries.get(earlier).is_null();
        entries.count(if is_earlier { earlier } else { key }, 1..=most as usize)
    };
    let hidden = count(["hidden_size", "d_model"], most.hidden)?;
    let heads = count(["num_attention_heads", "n_heads"], 1 << 12)?;
    let intermediate = if entries.get("intermediate_size").is_null() {
        // As the package esm derives it.
        (8 * hidden / 3).next_multiple_of(256)
    } else {
        entries.count("intermediate_size", 1..=most.intermediate as usize)?
    };
    let layers = count(["num_hidden_layers", "n_layers"], most.layers)?;
    let config = config([layers, hidden, heads, intermediate]);
    check(entries, &config)?;
    Ok(config)
}

/// Checks a `config.json` beside a checkpoint of the first release against the configuration by shapes.
pub(crate) fn check_first_release(json: &[u8], config: &ModelConfig) -> Result<(), String> {
    let entries = Entries::parse(json)?;
    entries.must_be("model_type", "esmc", true)?;
    check(&entries, config)
}

/// Checks the entries that are there.
fn check(entries: &Entries, config: &ModelConfig) -> Result<(), String> {
    entries.must_be("hidden_act", "silu", true)?;
    entries.must_be("layer_norm_eps", config.layer_norm_eps, true)?;
    for key in ["attention_bias", "mlp_bias", "tie_word_embeddings"] {
        entries.must_be(key, false, true)?;
    }
    entries.must_be_default()?;
    let sizes = [
        ("vocab_size", VOCABULARY),
        ("hidden_size", config.hidden),
        ("d_model", config.hidden),
        ("num_hidden_layers", config.layers),
        ("n_layers", config.layers),
        ("num_attention_heads", config.heads),
        ("n_heads", config.heads),
        ("num_key_value_heads", config.heads),
        ("head_dim", config.head_dim()),
        ("intermediate_size", config.intermediate),
    ];
    let mut sizes = sizes.into_iter();
    sizes.try_for_each(|(key, size)| entries.must_be(key, size, true))
}

/// Returns the configuration of a checkpoint of the first release, by the names and shapes of its tensors; `None` for any other.
pub(crate) fn from_shapes(tensors: &[(&str, &[usize])]) -> Option<ModelConfig> {
    let (mut layers, mut hidden, mut intermediate) = (0, None, None);
    for &(name, shape) in tensors {
        match (name, shape) {
            ("embed.weight", &[_, width]) => hidden = Some(width),
            ("transformer.blocks.0.ffn.1.weight", &[rows, _]) => intermediate = Some(rows / 2),
            _ => {}
        }
        layers +=
            usize::from(name.starts_with("transformer.blocks.") && name.ends_with(".ffn.1.weight"));
    }
    let (hidden, intermediate) = (hidden?, intermediate?);
    let most = ModelShape::MOST;
    let is_possible = layers <= most.layers as usize
        && (1..=most.hidden as usize).contains(&hidden)
        && (1..=most.intermediate as usize).contains(&intermediate)
        && hidden.is_multiple_of(HEAD_DIM)
        && intermediate.is_multiple_of(16);
    is_possible.then(|| config([layers, hidden, hidden / HEAD_DIM, intermediate]))
}

fn config([layers, hidden, heads, intermediate]: [usize; 4]) -> ModelConfig {
    ModelConfig {
        layers,
        hidden,
        heads,
        intermediate,
        layer_norm_eps: 1e-5,
        token_dropout: false,
        tied_decoder: false,
        vocabulary: VOCABULARY,
        tokens: token_names("|"),
        architecture: ARCHITECTURE,
    }
}
