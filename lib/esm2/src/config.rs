//! The shape of an ESM-2, as a Hub checkpoint's `config.json` states it.

use std::ops::RangeInclusive;

use plmkit_contract::VOCABULARY;
use serde_json::{Map, Value};

use crate::rope::ROPE_BASE;
use crate::vocabulary::MASK;

/// The sizes and constants of one ESM-2. Any size: 8M (6 layers of 320) to 15B (48 layers of 5,120) and others.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Transformer layers (`num_hidden_layers`).
    pub layers: usize,
    /// Channels of a token's vector (`hidden_size`).
    pub hidden: usize,
    /// Attention heads (`num_attention_heads`).
    pub heads: usize,
    /// Channels inside the feed-forward network (`intermediate_size`).
    pub intermediate: usize,
    /// The epsilon of every `LayerNorm` (`layer_norm_eps`).
    pub layer_norm_eps: f64,
    /// Whether embeddings are scaled as if tokens had been masked in training (`token_dropout`; true for ESM-2).
    pub token_dropout: bool,
}

/// An entry of `config.json` that is not that of an ESM-2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text is not a JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// An entry is absent or has another value.
    #[error("key '{key}': expected {expected}, found {found}")]
    Entry {
        /// The key.
        key: &'static str,
        /// What an ESM-2 has there.
        expected: String,
        /// What the file has.
        found: String,
    },
}

impl ModelConfig {
    /// Reads and checks the bytes of a `config.json`.
    ///
    /// ```
    /// let json = br#"{"model_type": "esm", "position_embedding_type": "rotary", "token_dropout": true,
    ///     "vocab_size": 33, "num_hidden_layers": 6, "hidden_size": 320, "num_attention_heads": 20,
    ///     "intermediate_size": 1280, "layer_norm_eps": 1e-5}"#;
    /// let config = plmkit_esm2::ModelConfig::from_json(json).unwrap();
    /// assert_eq!((config.layers, config.head_dim()), (6, 16));
    /// ```
    pub fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        let entries: Map<String, Value> =
            serde_json::from_slice(json).map_err(|error| ConfigError::Json(error.to_string()))?;
        let entries = Entries(entries);
        entries.must_be("model_type", "esm", false)?;
        entries.must_be("position_embedding_type", "rotary", false)?;
        entries.must_be("vocab_size", VOCABULARY, false)?;
        entries.must_be("mask_token_id", MASK, true)?;
        entries.must_be("hidden_act", "gelu", true)?;
        entries.must_be("rope_theta", ROPE_BASE, true)?;
        entries.must_be("emb_layer_norm_before", false, true)?;
        entries.must_be("tie_word_embeddings", true, true)?;
        entries.must_be("is_folding_model", false, true)?;
        let config = Self {
            layers: entries.count("num_hidden_layers", 1..=1 << 10)?,
            hidden: entries.count("hidden_size", 2..=1 << 16)?,
            heads: entries.count("num_attention_heads", 1..=1 << 12)?,
            intermediate: entries.count("intermediate_size", 1..=1 << 18)?,
            layer_norm_eps: entries.epsilon("layer_norm_eps")?,
            token_dropout: entries.flag("token_dropout")?,
        };
        // The rotary embedding pairs the channels of a head.
        if config.hidden.is_multiple_of(2 * config.heads) {
            Ok(config)
        } else {
            Err(ConfigError::Entry {
                key: "hidden_size",
                expected: format!(
                    "an even number of channels for each of {} heads",
                    config.heads
                ),
                found: config.hidden.to_string(),
            })
        }
    }

    /// Channels of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Floating-point operations that one token costs in the matrix products of all layers, a multiplication and an addition
    /// being two: queries, keys, values and output, and into and out of the feed-forward network.
    pub fn flops_per_token(&self) -> u64 {
        let (hidden, intermediate) = (self.hidden as u64, self.intermediate as u64);
        self.layers as u64 * 2 * hidden * (4 * hidden + 2 * intermediate)
    }

    /// Floating-point operations that a pair of tokens of one sequence costs in the attention of all layers and heads: queries by
    /// keys, and weights by values.
    pub fn flops_per_pair(&self) -> u64 {
        self.layers as u64 * 4 * self.hidden as u64
    }
}

struct Entries(Map<String, Value>);

impl Entries {
    /// The value of `key`; an entry that is null is the same as an absent one.
    fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// An entry that can only have one value, and that may be absent where `optional`.
    fn must_be(
        &self,
        key: &'static str,
        expected: impl Into<Value>,
        optional: bool,
    ) -> Result<(), ConfigError> {
        let (found, expected) = (self.get(key), expected.into());
        let same_number = found.is_number() && found.as_f64() == expected.as_f64();
        if *found == expected || same_number || (optional && found.is_null()) {
            Ok(())
        } else {
            Err(self.wrong(key, expected.to_string()))
        }
    }

    fn count(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        self.get(key)
            .as_u64()
            .and_then(|value| usize::try_from(value).ok())
            .filter(|value| range.contains(value))
            .ok_or_else(|| {
                self.wrong(
                    key,
                    format!("a whole number from {} to {}", range.start(), range.end()),
                )
            })
    }

    fn epsilon(&self, key: &'static str) -> Result<f64, ConfigError> {
        self.get(key)
            .as_f64()
            .filter(|value| *value > 0.0 && *value <= 0.1)
            .ok_or_else(|| self.wrong(key, "a number above 0, at most 0.1".to_owned()))
    }

    fn flag(&self, key: &'static str) -> Result<bool, ConfigError> {
        self.get(key)
            .as_bool()
            .ok_or_else(|| self.wrong(key, "true or false".to_owned()))
    }

    fn wrong(&self, key: &'static str, expected: String) -> ConfigError {
        let found = match self.get(key) {
            Value::Null => "nothing".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            value => one_line(&value.to_string()).chars().take(80).collect(),
        };
        ConfigError::Entry {
            key,
            expected,
            found,
        }
    }
}

/// JSON escapes most control characters by itself, but not those above ASCII's first 32.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hub() -> Value {
        json!({
            "model_type": "esm", "position_embedding_type": "rotary", "vocab_size": 33, "mask_token_id": 32,
            "hidden_act": "gelu", "emb_layer_norm_before": false, "is_folding_model": false,
            "esmfold_config": null, "vocab_list": null, "max_position_embeddings": 1026,
            "num_hidden_layers": 33, "hidden_size": 1280, "num_attention_heads": 20,
            "intermediate_size": 5120, "layer_norm_eps": 1e-5, "token_dropout": true,
        })
    }

    fn with(key: &str, value: Value) -> Result<ModelConfig, ConfigError> {
        let mut config = hub();
        config[key] = value;
        ModelConfig::from_json(config.to_string().as_bytes())
    }

    #[test]
    fn the_hub_config_of_650m() {
        let config = ModelConfig::from_json(hub().to_string().as_bytes()).unwrap();
        assert_eq!((config.layers, config.hidden, config.heads), (33, 1280, 20));
        assert_eq!((config.head_dim(), config.intermediate), (64, 5120));
        // Twice its matrices' parameters: 33 layers of 12 x 1280 x 1280.
        assert_eq!(config.flops_per_token(), 2 * 648_806_400);
        assert_eq!(config.flops_per_pair(), 33 * 4 * 1280);
    }

    #[test]
    fn entries_that_some_checkpoints_leave_null_have_defaults() {
        for key in [
            "emb_layer_norm_before",
            "mask_token_id",
            "hidden_act",
            "is_folding_model",
        ] {
            assert!(with(key, Value::Null).is_ok(), "{key}");
        }
        assert!(with("rope_theta", json!(10000)).is_ok());
    }

    #[test]
    fn a_wrong_entry_is_named_with_what_was_expected() {
        for (key, value, text) in [
            (
                "model_type",
                json!("bert"),
                r#"key 'model_type': expected "esm", found "bert""#,
            ),
            (
                "rope_theta",
                json!(1e6),
                "key 'rope_theta': expected 10000.0, found 1000000.0",
            ),
            (
                "vocab_size",
                json!(32),
                "key 'vocab_size': expected 33, found 32",
            ),
            (
                "position_embedding_type",
                Value::Null,
                r#"key 'position_embedding_type': expected "rotary", found nothing"#,
            ),
            (
                "emb_layer_norm_before",
                json!(true),
                "key 'emb_layer_norm_before': expected false, found true",
            ),
            (
                "hidden_size",
                json!("320"),
                "expected a whole number from 2 to 65536, found \"320\"",
            ),
            ("hidden_size", json!(1u64 << 40), "found 1099511627776"),
            (
                "num_hidden_layers",
                json!(0),
                "expected a whole number from 1 to 1024, found 0",
            ),
            (
                "layer_norm_eps",
                json!(0),
                "expected a number above 0, at most 0.1, found 0",
            ),
            (
                "token_dropout",
                json!([]),
                "expected true or false, found an array",
            ),
            (
                "num_attention_heads",
                json!(21),
                "an even number of channels for each of 21 heads, found 1280",
            ),
        ] {
            let error = with(key, value).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
            assert!(
                error.contains(key) || key == "num_attention_heads",
                "{error}"
            );
        }
        let error = with("hidden_act", json!("ge\u{85}\u{7f}lu")).unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
        assert!(matches!(
            ModelConfig::from_json(b"[]"),
            Err(ConfigError::Json(_))
        ));
        assert!(matches!(
            ModelConfig::from_json(b"{"),
            Err(ConfigError::Json(_))
        ));
    }
}
