//! What a model computes: the sizes and the architecture that a checkpoint's `config.json` describes.

mod entries;
mod esm;
mod esmc;

use plmkit_contract::{ModelShape, Widths};
use serde::{Deserialize, Serialize};

use entries::Entries;
pub(crate) use esmc::{check_first_release, from_shapes};

/// The sizes and constants of a model of any size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Transformer layers.
    pub layers: usize,
    /// Channels of a token's vector.
    pub hidden: usize,
    /// Attention heads.
    pub heads: usize,
    /// Channels inside the feed-forward network.
    pub intermediate: usize,
    /// The epsilon of every `LayerNorm`.
    pub layer_norm_eps: f64,
    /// Whether embeddings are scaled as if tokens had been masked in training.
    pub token_dropout: bool,
    /// Whether the language-model head decodes with the word embeddings where no other decoder is stored.
    pub tied_decoder: bool,
    /// Rows of the word embeddings, and values in the logits of a residue.
    pub vocabulary: usize,
    /// The name of each token, by its id. Later ids have no token.
    pub tokens: Vec<String>,
    /// What the layers compute.
    pub architecture: Architecture,
}

/// Checks that a `config.json` names no other weight file or index for transformers than the one that is `read`.
pub(crate) fn check_weights(json: &[u8], read: &str) -> Result<(), String> {
    Entries::parse(json)?.must_be("transformers_weights", read, true)
}

/// What the layers of a model compute. All are pre-layer normalised, and attend in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a trait of its own, in any combination"
)]
pub struct Architecture {
    /// How a token knows its position.
    pub positions: Positions,
    /// Whether a `LayerNorm` follows the embedding.
    pub embedding_norm: bool,
    /// Whether a `LayerNorm` of the whole width of queries, and one of keys, precedes their rotation.
    pub query_key_norm: bool,
    /// The activation of the feed-forward network.
    pub feed_forward: FeedForward,
    /// Whether the dense layers of attention and of the feed-forward network have biases.
    pub dense_bias: bool,
    /// Whether the last `LayerNorm` has a bias.
    pub final_norm_bias: bool,
    /// `Some(n)` if each branch is divided by `√(layers/n)` before it is added to the residual stream.
    pub branch_depth: Option<u32>,
}

/// How a token knows its position, which counts from 0 for `<cls>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Positions {
    /// Rotated queries and keys. The checkpoint has the frequencies, which training rounded.
    StoredRotary,
    /// Rotated queries and keys, by frequencies that are not stored.
    ComputedRotary,
    /// A table with a vector for each position, which is added to the embedding.
    Learned {
        /// Rows of the table before that of position 0.
        first: usize,
        /// The most tokens of a sequence.
        longest: usize,
    },
}

/// The activation of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedForward {
    /// `down(GELU(up(x)))`, by erf.
    Gelu,
    /// `down(silu(gate(x)) · up(x))`.
    SwiGlu,
}

impl ModelConfig {
    /// Reads and checks the bytes of a `config.json`. An error tells the key, the expected value and the value found.
    ///
    /// ```
    /// let json = br#"{"model_type": "esm", "position_embedding_type": "rotary", "token_dropout": true,
    ///     "vocab_size": 33, "num_hidden_layers": 6, "hidden_size": 320, "num_attention_heads": 20,
    ///     "intermediate_size": 1280, "layer_norm_eps": 1e-5}"#;
    /// let config = plmkit_esm2::ModelConfig::from_json(json).unwrap();
    /// assert_eq!((config.layers, config.head_dim()), (6, 16));
    /// ```
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let entries = Entries::parse(json)?;
        let config = match entries.get("model_type").as_str() {
            Some("esm") => esm::read(&entries)?,
            Some("esmc") => esmc::read(&entries)?,
            _ => return Err(entries.invalid("model_type", "\"esm\" or \"esmc\"")),
        };
        // The rotary embedding pairs the channels of a head.
        if !config.hidden.is_multiple_of(2 * config.heads) {
            let heads = config.heads;
            let expected = format!("an even number of channels for each of {heads} heads");
            return Err(entries.invalid("hidden_size", &expected));
        }
        // A vector of gates and one of inputs are a panel of the CPU kernels.
        if config.is_gated() && !config.intermediate.is_multiple_of(16) {
            return Err(entries.invalid("intermediate_size", "a multiple of 16"));
        }
        Ok(config)
    }

    /// Returns the channels of an attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Whether the feed-forward network has a gate.
    pub fn is_gated(&self) -> bool {
        self.architecture.feed_forward == FeedForward::SwiGlu
    }

    /// Whether queries and keys are rotated.
    pub(crate) fn is_rotary(&self) -> bool {
        !matches!(self.architecture.positions, Positions::Learned { .. })
    }

    /// Returns the most tokens of a sequence, if there is a limit.
    pub fn longest(&self) -> Option<usize> {
        match self.architecture.positions {
            Positions::Learned { longest, .. } => Some(longest),
            Positions::StoredRotary | Positions::ComputedRotary => None,
        }
    }

    /// Returns the factor of a branch that is added to the residual stream.
    pub fn branch_scale(&self) -> f64 {
        let depth = self.architecture.branch_depth;
        depth.map_or(1.0, |depth| (f64::from(depth) / self.layers as f64).sqrt())
    }

    /// Returns the number of values in the vectors.
    pub fn widths(&self) -> Widths {
        self.shape().widths()
    }

    /// Returns the name of the token of each value in the logits of a residue; `None` where there is no token.
    pub fn logit_tokens(&self) -> Vec<Option<&str>> {
        let token = |id| self.tokens.get(id).map(String::as_str);
        (0..self.vocabulary).map(token).collect()
    }

    /// Returns the sizes that decide the cost of the model.
    pub fn shape(&self) -> ModelShape {
        ModelShape {
            layers: self.layers as u32,
            hidden: self.hidden as u32,
            intermediate: self.intermediate as u32,
            gated: self.is_gated(),
            logits: self.vocabulary as u32,
        }
    }
}

#[cfg(test)]
mod tests;
