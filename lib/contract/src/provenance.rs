//! What a data file was made from, by what, and with which options: its metadata entries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ByteDigest, Kind, Quoted, RowDigest};

/// The version of the file contract. A reader refuses a file of another version.
pub const CONTRACT_VERSION: &str = "1";

/// The option of an embeddings file that says how its batches were packed. It decides the order of rows and not what
/// is in them: a file of other batches is other work, and may belong to the same set of files.
pub const PACKING: &str = "packing";

/// The option of an embeddings file that says what computed it. It decides the last bits and not what is in the file: one
/// made by others is the same work.
pub const KERNELS: &str = "kernels";

/// The option that files made from windows have, and no others: `true` in a batches file, and what became of the
/// windows in an embeddings file, "stitch" or "separate".
pub const WINDOWS: &str = "windows";

/// The option of batches and embeddings that says which cut of which FASTA they were made from: the same text for all that comes
/// of one set of shards, and another for anything else. Ordinals count within it.
pub const SOURCE: &str = "source";

/// The metadata keys of every data file.
pub mod key {
    /// What the names of all entries begin with.
    pub const PREFIX: &str = "plmkit.";
    /// The kind of file: see [`Kind`](crate::Kind).
    pub const KIND: &str = "plmkit.kind";
    /// The [contract version](crate::CONTRACT_VERSION).
    pub const CONTRACT: &str = "plmkit.contract";
    /// The program that wrote the file.
    pub const TOOL: &str = "plmkit.tool";
    /// Its version.
    pub const VERSION: &str = "plmkit.version";
    /// JSON array: digests of what the file was made from.
    pub const INPUTS: &str = "plmkit.inputs";
    /// JSON object: the options that the content depends on.
    pub const OPTIONS: &str = "plmkit.options";
    /// The [digest](crate::ByteDigest) of the file that lists what is not in this one. Not every file has it.
    pub const REJECTS: &str = "plmkit.rejects";
    /// JSON object: a [`ModelName`](crate::ModelName). Embeddings have it.
    pub const MODEL: &str = "plmkit.model";
    /// JSON object: how near a sample of the rows came to the same in f32. Files that were computed in int8 have it.
    pub const PARITY: &str = "plmkit.parity";
    /// The [row digest](crate::RowDigest).
    pub const ROWS: &str = "plmkit.rows";
}

/// What people call a model. Its identity is the digest among the options: a name may stand for other weights tomorrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelName {
    /// The id of the Hugging Face Hub, `organisation/name`, or the name of the folder that the model was in.
    pub name: String,
    /// The commit of the Hub, where it is known.
    pub revision: Option<String>,
}

/// Where a file comes from. No path, host name or time: the same work gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The program.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// Digests of what the file was made from, in order.
    pub inputs: Vec<String>,
    /// The options that the content depends on, the defaults included.
    pub options: BTreeMap<String, Value>,
    /// Digest of the file that lists what could not be made, where there may be such a thing. It is found out and not
    /// asked for: files that differ in nothing else are of the same work.
    pub rejects: Option<String>,
    /// How near a sample came to the same in f32, where that was measured. It is found out like the rejects.
    pub parity: Option<Value>,
    /// What the model was called. The same work has another name tomorrow: it is no difference either.
    pub model: Option<ModelName>,
}

/// What is wrong with a file's metadata.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The file was not written by plmkit.
    #[error(
        "not a plmkit {expected} file: it has no '{}' metadata entry",
        key::KIND
    )]
    Foreign {
        /// What the reader wanted.
        expected: Kind,
    },
    /// Another kind of plmkit file.
    #[error("expected a plmkit {expected} file, found kind {}", Quoted(.found))]
    Kind {
        /// What the reader wanted.
        expected: Kind,
        /// What the file says it is.
        found: String,
    },
    /// A contract of the past or the future.
    #[error("expected file contract version {CONTRACT_VERSION}, found {}", Quoted(.found))]
    Contract {
        /// The file's version.
        found: String,
    },
    /// An entry is missing or is not of its form.
    #[error("metadata entry '{key}' is missing or malformed")]
    Entry {
        /// The entry.
        key: &'static str,
    },
}

impl MetadataError {
    /// Whether the file may be whole and is none that was asked for.
    pub fn is_of_another_kind(&self) -> bool {
        matches!(
            self,
            Self::Foreign { .. } | Self::Kind { .. } | Self::Contract { .. }
        )
    }
}

impl Provenance {
    /// What `tool` of this version makes from `inputs`, with no options yet.
    pub fn new(tool: &str, inputs: Vec<String>) -> Self {
        Self {
            tool: tool.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            inputs,
            options: BTreeMap::new(),
            rejects: None,
            parity: None,
            model: None,
        }
    }

    /// The same with one more option.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.options.insert(name.to_owned(), json!(value));
        self
    }

    /// The same with the digest of the file that lists what could not be made.
    #[must_use]
    pub fn with_rejects(mut self, digest: String) -> Self {
        self.rejects = Some(digest);
        self
    }

    /// The same with what a sample showed.
    #[must_use]
    pub fn with_parity(mut self, parity: Option<Value>) -> Self {
        self.parity = parity;
        self
    }

    /// The same with what the model was called.
    #[must_use]
    pub fn with_model(mut self, model: ModelName) -> Self {
        self.model = Some(model);
        self
    }

    /// The value of an option that is text.
    pub fn text_option(&self, name: &str) -> Option<&str> {
        self.options.get(name)?.as_str()
    }

    /// The digest by which what is made of these files knows them: [`SOURCE`].
    pub fn source(&self) -> String {
        let work = json!([self.inputs, self.options]);
        ByteDigest::compute(work.to_string().as_bytes()).to_string()
    }

    /// The metadata entries of a finished file with the rows `rows`.
    pub fn entries(&self, kind: Kind, rows: RowDigest) -> BTreeMap<String, String> {
        let optional = [
            (key::REJECTS, self.rejects.clone()),
            (key::PARITY, self.parity.as_ref().map(Value::to_string)),
            (
                key::MODEL,
                self.model.as_ref().map(|model| json!(model).to_string()),
            ),
        ];
        let entries = [
            (key::KIND, kind.to_string()),
            (key::CONTRACT, CONTRACT_VERSION.to_owned()),
            (key::TOOL, self.tool.clone()),
            (key::VERSION, self.version.clone()),
            (key::INPUTS, json!(self.inputs).to_string()),
            (key::OPTIONS, json!(self.options).to_string()),
            (key::ROWS, rows.to_string()),
        ];
        let optional = optional
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        let entries = entries.into_iter().chain(optional);
        entries
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    /// Reads the metadata of a file of `kind`.
    pub fn open(
        metadata: &BTreeMap<String, String>,
        kind: Kind,
    ) -> Result<(Self, RowDigest), MetadataError> {
        let found = metadata
            .get(key::KIND)
            .ok_or(MetadataError::Foreign { expected: kind })?;
        if *found != kind.to_string() {
            return Err(MetadataError::Kind {
                expected: kind,
                found: found.clone(),
            });
        }
        let entry = |key: &'static str| {
            metadata
                .get(key)
                .map(String::as_str)
                .ok_or(MetadataError::Entry { key })
        };
        let contract = entry(key::CONTRACT)?;
        if contract != CONTRACT_VERSION {
            return Err(MetadataError::Contract {
                found: contract.to_owned(),
            });
        }
        let provenance = Self {
            tool: entry(key::TOOL)?.to_owned(),
            version: entry(key::VERSION)?.to_owned(),
            inputs: parse(key::INPUTS, entry(key::INPUTS)?)?,
            options: parse(key::OPTIONS, entry(key::OPTIONS)?)?,
            rejects: metadata.get(key::REJECTS).cloned(),
            parity: optional(metadata, key::PARITY)?,
            model: optional(metadata, key::MODEL)?,
        };
        let rows = entry(key::ROWS)?
            .parse()
            .map_err(|()| MetadataError::Entry { key: key::ROWS })?;
        Ok((provenance, rows))
    }

    /// The first thing in which `other` is not the same work, or `None`. The version of the program is no
    /// difference: a new release does not make finished files stale.
    ///
    /// ```
    /// use plmkit_contract::Provenance;
    /// let old = Provenance::new("pack-batches", vec!["a".into()]).with("max_batch_tokens", 8192);
    /// let new = Provenance::new("pack-batches", vec!["a".into()]).with("max_batch_tokens", 16384);
    /// assert_eq!(old.difference(&new).unwrap(), "max_batch_tokens was 8192 and is now 16384");
    /// assert_eq!(old.difference(&old), None);
    /// ```
    pub fn difference(&self, other: &Self) -> Option<String> {
        if let Some((what, was, is)) = self.changed_work(other) {
            return Some(format!("{what} was {was} and is now {is}"));
        }
        if self.inputs != other.inputs || self.options.get(SOURCE) != other.options.get(SOURCE) {
            return Some("the input is not the same".to_owned());
        }
        let packed_otherwise = self.options.get(PACKING) != other.options.get(PACKING);
        packed_otherwise.then(|| "the batches are packed otherwise".to_owned())
    }

    /// The first thing but the inputs, their source and their packing in which `other` is not the same work: what it is, here and
    /// in `other`.
    pub fn changed_work<'a>(&'a self, other: &'a Self) -> Option<(&'a str, String, String)> {
        if self.tool != other.tool {
            let [here, there] = [self, other].map(|work| Quoted(&work.tool).to_string());
            return Some(("the program", here, there));
        }
        let mut names = self.options.keys().chain(other.options.keys());
        let name = names.find(|&name| {
            ![PACKING, KERNELS, SOURCE].contains(&name.as_str())
                && self.options.get(name) != other.options.get(name)
        })?;
        let [here, there] = [self, other].map(|work| {
            let value = work.options.get(name);
            value.map_or("unset".into(), Value::to_string)
        });
        Some((name, here, there))
    }
}

fn optional<T: serde::de::DeserializeOwned>(
    metadata: &BTreeMap<String, String>,
    key: &'static str,
) -> Result<Option<T>, MetadataError> {
    metadata.get(key).map(|text| parse(key, text)).transpose()
}

fn parse<T: serde::de::DeserializeOwned>(
    key: &'static str,
    text: &str,
) -> Result<T, MetadataError> {
    serde_json::from_str(text).map_err(|_| MetadataError::Entry { key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> BTreeMap<String, String> {
        Provenance::new("fasta-shard", vec!["blake3-128:00".into()])
            .with("max_residues", 1022)
            .with_rejects("xxh3-128:00".into())
            .with_parity(Some(json!({ "mean": 0.9999 })))
            .entries(Kind::Shard, RowDigest::default())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (read, rows) = Provenance::open(&written(), Kind::Shard).expect("just written");
        assert_eq!(read.tool, "fasta-shard");
        assert_eq!(read.options["max_residues"], 1022);
        assert_eq!(read.rejects.as_deref(), Some("xxh3-128:00"));
        assert_eq!(read.parity.expect("it was given")["mean"], 0.9999);
        assert_eq!(rows, RowDigest::default());
    }

    #[test]
    fn an_entry_that_is_missing_is_named() {
        for key in [key::CONTRACT, key::TOOL, key::INPUTS, key::ROWS] {
            let mut entries = written();
            entries.remove(key);
            let error = Provenance::open(&entries, Kind::Shard).expect_err(key);
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn other_batches_are_other_work_for_a_file_and_not_for_a_set() {
        let of =
            |packing: &str| Provenance::new("gpu-embed", vec!["a".into()]).with(PACKING, packing);
        let difference = of("one").difference(&of("other"));
        assert_eq!(
            difference.as_deref(),
            Some("the batches are packed otherwise")
        );
        assert_eq!(of("one").changed_work(&of("other")), None);
        assert_eq!(of("one").difference(&of("one")), None);
    }

    #[test]
    fn another_kind_is_named() {
        let error = Provenance::open(&written(), Kind::Batches).expect_err("a shard");
        assert_eq!(
            error.to_string(),
            "expected a plmkit batches file, found kind 'shard'"
        );
    }
}
