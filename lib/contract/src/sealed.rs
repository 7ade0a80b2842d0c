//! JSON files that end with a seal, so that any changed byte is found.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ByteDigest;

/// Why bytes are not the file that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// Another program's JSON.
    #[error("not a {expected}")]
    Foreign {
        /// What the reader wanted.
        expected: &'static str,
    },
    /// The text is not the one that was written.
    #[error("damaged or altered: it does not match its seal")]
    Seal,
    /// The text is sealed and has other entries.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What comes between the entries and the seal, which is the last of them.
const SEAL_ENTRY: &str = ",\n  \"seal\": \"";

/// The whole of a JSON file that ends with a seal.
pub trait Sealed: Serialize + DeserializeOwned {
    /// What the file is, in messages: `manifest of fasta-shard`.
    const WHAT: &str;
    /// The program that writes it, which is its entry `tool`.
    const TOOL: &str;

    /// The text of the file: indented JSON whose last entry, `seal`, is the XXH3-128 of all text before it.
    ///
    /// # Panics
    /// Never: every entry has a form in JSON.
    fn to_json(&self) -> String {
        seal(self)
    }

    /// Reads the text of a file. Any changed byte is an error.
    fn from_json(text: &[u8]) -> Result<Self, SealedError> {
        let foreign = |value: Value| value["tool"] != Self::TOOL;
        let expected = Self::WHAT;
        match sealed_entries(text) {
            Some((entries, seal)) if seal == end(entries) => Ok(serde_json::from_slice(text)?),
            None if serde_json::from_slice(text).is_ok_and(foreign) => {
                Err(SealedError::Foreign { expected })
            }
            _ => Err(SealedError::Seal),
        }
    }
}

/// A value with entries as the text of a JSON file that ends with a seal.
///
/// # Panics
/// If the value has no form in JSON.
pub fn seal<T: Serialize + ?Sized>(value: &T) -> String {
    let text = serde_json::to_string_pretty(value).expect("every entry has a form in JSON");
    let entries = text.strip_suffix("\n}").unwrap_or(&text);
    format!("{entries}{SEAL_ENTRY}{}", end(entries))
}

/// Whether the text of a file ends with the seal of what comes before it.
pub fn is_sealed(text: &[u8]) -> bool {
    sealed_entries(text).is_some_and(|(entries, seal)| seal == end(entries))
}

fn sealed_entries(text: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(text).ok()?.rsplit_once(SEAL_ENTRY)
}

/// The seal of `entries` and what closes the text.
fn end(entries: &str) -> String {
    format!("{}\"\n}}\n", ByteDigest::compute(entries.as_bytes()))
}
