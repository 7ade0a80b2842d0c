//! JSON files that end with a seal: a digest of the text before it, so that every changed byte is detected.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::provenance::check_contract;
use crate::{ByteDigest, ContentError};

/// The text between the other entries and the value of the seal, which is the last entry.
const SEAL_ENTRY: &str = ",\n  \"seal\": \"";

/// A JSON file that ends with a seal.
pub trait Sealed: Serialize + DeserializeOwned {
    /// The name of the file in messages: `manifest of fasta-shard`.
    const WHAT: &str;
    /// The program that writes the file: its entry `tool`.
    const TOOL: &str;

    /// Formats the file: indented JSON whose last entry, `seal`, is the XXH3-128 of all text before it.
    ///
    /// # Panics
    /// Never: every entry can be written as JSON.
    fn to_json(&self) -> String {
        seal(self)
    }

    /// Parses the text of a file. Any changed byte is an error, and so is another version of the file contract.
    fn from_json(text: &[u8]) -> Result<Self, ContentError> {
        if is_sealed(text) {
            // First the version: in another one, other entries may be expected.
            if let Some(found) = parse::<Value>(text)?["contract"].as_str() {
                check_contract(found)?;
            }
            return parse(text);
        }
        let is_foreign = |value: Value| value["tool"] != Self::TOOL;
        if split_at_seal(text).is_none() && serde_json::from_slice(text).is_ok_and(is_foreign) {
            return Err(ContentError::Foreign(format!("not a {}", Self::WHAT)));
        }
        Err(ContentError::broken_seal())
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ContentError> {
    serde_json::from_slice(text).map_err(|error| ContentError::Malformed(error.to_string()))
}

/// Formats a value as the text of a JSON file that ends with a seal.
///
/// # Panics
/// If the value cannot be written as JSON.
pub fn seal<T: Serialize + ?Sized>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("every entry can be written as JSON");
    let entries = text.strip_suffix("\n}").unwrap_or(&text);
    format!("{entries}{SEAL_ENTRY}{}", closing_text(entries))
}

/// Whether the text of a file ends with the seal of the text before it.
pub fn is_sealed(text: &[u8]) -> bool {
    split_at_seal(text).is_some_and(|(entries, seal)| seal == closing_text(entries))
}

fn split_at_seal(text: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(text).ok()?.rsplit_once(SEAL_ENTRY)
}

/// The value of the seal of `entries`, and the text that closes the file.
fn closing_text(entries: &str) -> String {
    format!("{}\"\n}}\n", ByteDigest::compute(entries.as_bytes()))
}
