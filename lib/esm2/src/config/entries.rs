//! The entries of a `config.json`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use plmkit_contract::{EOS, MASK};
use plmkit_kit::Quoted;
use serde_json::{Map, Value};

use crate::rope::ROPE_BASE;

/// What a `config.json` says, by key.
pub(super) struct Entries(pub(super) Map<String, Value>);

impl Entries {
    /// Reads a JSON object.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let entries = serde_json::from_slice(json);
        entries
            .map(Self)
            .map_err(|error| format!("not a JSON object: {error}"))
    }

    /// Returns the value of `key`; null if it is absent.
    pub(super) fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// Checks an entry that can have only one value. It may be absent if `optional`.
    pub(super) fn must_be(
        &self,
        key: &str,
        expected: impl Into<Value>,
        optional: bool,
    ) -> Result<(), String> {
        let (found, expected) = (self.get(key), expected.into());
        let same_number = found.is_number() && found.as_f64() == expected.as_f64();
        if *found == expected || same_number || (optional && found.is_null()) {
            Ok(())
        } else {
            Err(self.invalid(key, &expected.to_string()))
        }
    }

    /// Checks the ids of special tokens, that weights are not quantized, and the objects that describe the rotation of queries and keys,
    /// as transformers 5 or 4 writes them. All are optional.
    pub(super) fn must_be_default(&self) -> Result<(), String> {
        self.must_be("pad_token_id", 1, true)?;
        self.must_be("eos_token_id", EOS, true)?;
        self.must_be("mask_token_id", MASK, true)?;
        self.must_be("quantization_config", Value::Null, true)?;
        let known = BTreeMap::from([
            ("rope_type", Value::from("default")),
            ("type", Value::from("default")),
            ("rope_theta", Value::from(ROPE_BASE)),
            ("partial_rotary_factor", Value::from(1.0)),
        ]);
        for key in ["rope_parameters", "rope_scaling"] {
            let Value::Object(object) = self.get(key) else {
                self.must_be(key, Value::Null, true)?;
                continue;
            };
            let entries = Self(object.clone());
            // The type first: it explains the others.
            let names = known.keys().rev().copied();
            for name in names.chain(object.keys().map(String::as_str)) {
                let expected = known.get(name).cloned().unwrap_or_default();
                let checked = entries.must_be(name, expected, true);
                checked.map_err(|what| format!("key '{key}': {what}"))?;
            }
        }
        Ok(())
    }

    /// Returns what `read` makes of the value of `key`. An error tells that something `expected` was not found.
    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, String> {
        read(self.get(key)).ok_or_else(|| self.invalid(key, expected))
    }

    pub(super) fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
        let (least, most) = (range.start(), range.end());
        let expected = format!("a whole number from {least} to {most}");
        self.read(key, &expected, |value| {
            let value = usize::try_from(value.as_u64()?).ok()?;
            range.contains(&value).then_some(value)
        })
    }

    pub(super) fn epsilon(&self, key: &str) -> Result<f64, String> {
        self.read(key, "a number above 0, at most 0.1", |value| {
            value.as_f64().filter(|value| *value > 0.0 && *value <= 0.1)
        })
    }

    /// Returns a flag, which may be absent if there is a default.
    pub(super) fn flag(&self, key: &str, default: Option<bool>) -> Result<bool, String> {
        self.read(key, "true or false", |value| match value {
            Value::Null => default,
            value => value.as_bool(),
        })
    }

    pub(super) fn invalid(&self, key: &str, expected: &str) -> String {
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
        format!("key {key}: expected {expected}, found {found}")
    }
}
