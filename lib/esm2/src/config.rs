//! The configuration of an ESM-2: a checkpoint's `config.json`.

use std::ops::RangeInclusive;

use plmkit_contract::{MASK, ModelShape, Quoted, VOCABULARY};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::rope::ROPE_BASE;

/// The sizes and constants of an ESM-2 of any size: 8M (6 layers of 320) to 15B (48 layers of 5,120) and others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Whether the language-model head decodes with the word embeddings where no other decoder is stored
    /// (`tie_word_embeddings`; true for ESM-2).
    pub tied_decoder: bool,
}

/// Why a `config.json` is not that of an ESM-2: the key, the expected value and the value found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

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
        let entries: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|error| ConfigError(format!("not a JSON object: {error}")))?;
        let entries = Entries(entries);
        entries.must_be("model_type", "esm", false)?;
        entries.must_be("position_embedding_type", "rotary", false)?;
        entries.must_be("vocab_size", VOCABULARY, false)?;
        entries.must_be("mask_token_id", MASK, true)?;
        entries.must_be("hidden_act", "gelu", true)?;
        entries.must_be("rope_theta", ROPE_BASE, true)?;
        entries.must_be("partial_rotary_factor", 1.0, true)?;
        entries.must_be_default_rotation("rope_parameters")?;
        entries.must_be_default_rotation("rope_scaling")?;
        entries.must_be("emb_layer_norm_before", false, true)?;
        entries.must_be("is_decoder", false, true)?;
        entries.must_be("is_folding_model", false, true)?;
        let most = ModelShape::MOST;
        let config = Self {
            layers: entries.count("num_hidden_layers", 1..=most.layers as usize)?,
            hidden: entries.count("hidden_size", 2..=most.hidden as usize)?,
            heads: entries.count("num_attention_heads", 1..=1 << 12)?,
            intermediate: entries.count("intermediate_size", 1..=most.intermediate as usize)?,
            layer_norm_eps: entries.epsilon("layer_norm_eps")?,
            token_dropout: entries.flag("token_dropout")?,
            tied_decoder: entries.get("tie_word_embeddings").is_null()
                || entries.flag("tie_word_embeddings")?,
        };
        // The rotary embedding pairs the channels of a head.
        if config.hidden.is_multiple_of(2 * config.heads) {
            Ok(config)
        } else {
            let heads = config.heads;
            let expected = format!("an even number of channels for each of {heads} heads");
            Err(entries.invalid("hidden_size", &expected))
        }
    }

    /// Returns the channels of an attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Returns the sizes that decide the cost of the model.
    pub fn shape(&self) -> ModelShape {
        ModelShape {
            layers: self.layers as u32,
            hidden: self.hidden as u32,
            intermediate: self.intermediate as u32,
        }
    }
}

/// The entries of a `config.json`.
struct Entries(Map<String, Value>);

impl Entries {
    /// Returns the value of `key`; null if it is absent.
    fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// Checks an entry that can have only one value. It may be absent if `optional`.
    fn must_be(
        &self,
        key: &str,
        expected: impl Into<Value>,
        optional: bool,
    ) -> Result<(), ConfigError> {
        let (found, expected) = (self.get(key), expected.into());
        let same_number = found.is_number() && found.as_f64() == expected.as_f64();
        if *found == expected || same_number || (optional && found.is_null()) {
            Ok(())
        } else {
            Err(self.invalid(key, &expected.to_string()))
        }
    }

    /// Checks an optional object that describes the rotation of queries and keys, as transformers 5 or 4 writes it.
    fn must_be_default_rotation(&self, key: &str) -> Result<(), ConfigError> {
        let Value::Object(object) = self.get(key) else {
            return self.must_be(key, Value::Null, true);
        };
        let known = [
            ("rope_type", Value::from("default")),
            ("type", Value::from("default")),
            ("rope_theta", Value::from(ROPE_BASE)),
            ("partial_rotary_factor", Value::from(1.0)),
        ];
        let of_key = |ConfigError(what)| ConfigError(format!("key '{key}': {what}"));
        let entries = Self(object.clone());
        // The type first: it explains the others.
        let names = known.iter().map(|(name, _)| *name);
        for name in names.chain(object.keys().map(String::as_str)) {
            let expected = known.iter().find(|(known, _)| *known == name);
            let expected = expected.map_or(Value::Null, |(_, value)| value.clone());
            entries.must_be(name, expected, true).map_err(of_key)?;
        }
        Ok(())
    }

    fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, ConfigError> {
        self.get(key)
            .as_u64()
            .and_then(|value| usize::try_from(value).ok())
            .filter(|value| range.contains(value))
            .ok_or_else(|| {
                let (least, most) = range.into_inner();
                self.invalid(key, &format!("a whole number from {least} to {most}"))
            })
    }

    fn epsilon(&self, key: &str) -> Result<f64, ConfigError> {
        self.get(key)
            .as_f64()
            .filter(|value| *value > 0.0 && *value <= 0.1)
            .ok_or_else(|| self.invalid(key, "a number above 0, at most 0.1"))
    }

    fn flag(&self, key: &str) -> Result<bool, ConfigError> {
        self.get(key)
            .as_bool()
            .ok_or_else(|| self.invalid(key, "true or false"))
    }

    fn invalid(&self, key: &str, expected: &str) -> ConfigError {
        let found = match self.get(key) {
            Value::Null => "nothing".to_owned(),
            Value::Array(_) => "an array".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            // JSON escapes only the control characters of ASCII.
            value => value
                .to_string()
                .replace(char::is_control, "\u{fffd}")
                .chars()
                .take(80)
                .collect(),
        };
        let key = Quoted(key);
        ConfigError(format!("key {key}: expected {expected}, found {found}"))
    }
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
        let published = ModelShape::published("facebook/esm2_t33_650M_UR50D");
        assert_eq!(Some(config.shape()), published);
    }

    #[test]
    fn entries_that_some_checkpoints_lack_have_defaults() {
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
    fn a_rotation_that_is_not_the_default_is_refused() {
        let default = json!({"rope_type": "default", "rope_theta": 10000.0, "factor": null});
        for (key, value) in [
            ("rope_parameters", default),
            ("rope_parameters", json!(null)),
            ("rope_scaling", json!({"type": "default"})),
            ("partial_rotary_factor", json!(1)),
            ("is_decoder", json!(false)),
        ] {
            assert_eq!(with(key, value), with("model_type", json!("esm")), "{key}");
        }
        for (key, value, text) in [
            (
                "rope_parameters",
                json!({"rope_type": "yarn", "factor": 4.0}),
                r#"key 'rope_type': expected "default", found "yarn""#,
            ),
            (
                "rope_parameters",
                json!({"factor": 4.0}),
                "key 'factor': expected null, found 4.0",
            ),
            (
                "rope_parameters",
                json!({"rope_theta": 1e6}),
                "key 'rope_theta': expected 10000.0, found 1000000.0",
            ),
            (
                "rope_parameters",
                json!({"partial_rotary_factor": 0.5}),
                "expected 1.0, found 0.5",
            ),
            (
                "rope_scaling",
                json!({"type": "linear"}),
                r#"key 'type': expected "default", found "linear""#,
            ),
            ("rope_scaling", json!(2.0), "expected null, found 2.0"),
            (
                "partial_rotary_factor",
                json!(0.5),
                "expected 1.0, found 0.5",
            ),
            ("is_decoder", json!(true), "expected false, found true"),
        ] {
            let error = with(key, value).unwrap_err().to_string();
            assert!(error.starts_with(&format!("key '{key}': ")), "{error}");
            assert!(error.ends_with(text), "{error}");
        }
    }

    #[test]
    fn a_decoder_that_is_not_tied_is_said() {
        for (tied, value) in [
            (true, json!(null)),
            (true, json!(true)),
            (false, json!(false)),
        ] {
            let config = with("tie_word_embeddings", value).unwrap();
            assert_eq!(config.tied_decoder, tied);
        }
    }

    #[test]
    fn a_wrong_entry_is_named_with_what_was_expected() {
        let none = Value::Null;
        for (key, value, text) in [
            (
                "model_type",
                json!("bert"),
                r#"expected "esm", found "bert""#,
            ),
            (
                "rope_theta",
                json!(1e6),
                "expected 10000.0, found 1000000.0",
            ),
            ("vocab_size", json!(32), "expected 33, found 32"),
            (
                "position_embedding_type",
                none,
                r#"expected "rotary", found nothing"#,
            ),
            (
                "emb_layer_norm_before",
                json!(true),
                "expected false, found true",
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
            let named = if key == "num_attention_heads" {
                "hidden_size"
            } else {
                key
            };
            assert!(error.starts_with(&format!("key '{named}': ")), "{error}");
        }
        let error = with("hidden_act", json!("ge\u{85}\u{7f}lu")).unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
        for text in ["[]", "{"] {
            let error = ModelConfig::from_json(text.as_bytes()).unwrap_err();
            assert!(
                error.to_string().starts_with("not a JSON object: "),
                "{error}"
            );
        }
    }
}
