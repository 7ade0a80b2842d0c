//! The provenance of a data file: program, inputs and options, as its metadata has them.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{ByteDigest, ContentError, Kind, RowDigest};
use plmkit_kit::Quoted;

/// The version of the file contract. A reader refuses a file of another version.
pub const CONTRACT_VERSION: &str = "1";

/// Checks that this program knows the version of the file contract that a file names. The error describes the difference.
pub(crate) fn check_contract(found: &str) -> Result<(), ContentError> {
    if found == CONTRACT_VERSION {
        return Ok(());
    }
    let found = Quoted(found);
    Err(ContentError::Foreign(format!(
        "expected file contract version {CONTRACT_VERSION}, found {found}"
    )))
}

/// The option of an embeddings file with the digest of its packing. The packing decides the order of rows, not their values.
/// A file with another packing is other work, and may belong to the same set of files.
pub const PACKING: &str = "packing";

/// The option of an embeddings file that names the kernels. They decide the last bits only: a file made by other kernels is
/// the same work.
pub const KERNELS: &str = "kernels";

/// The option of an embeddings file with logits that names the token of each value: a list, with null where there is none.
pub const LOGIT_TOKENS: &str = "logit_tokens";

/// The option of an embeddings file with scores that says how they were computed: see [`Scores`](crate::Scores).
pub const SCORES: &str = "scores";

/// The option of an embeddings file in which only some residues have scores: the digest of their ids and positions.
pub const SCORES_POSITIONS: &str = "scores_positions";

/// The option that only files with windows have: `true` in a batches file, "stitch" or "separate" in an embeddings file.
pub const WINDOWS: &str = "windows";

/// The option of batches and embeddings that identifies their set of shards. Ordinals count within a set.
pub const SOURCE: &str = "source";

/// The option of shards and batches that lack the sequences of earlier datasets: their digests, and the [work](crate::EmbeddingWork) that made them.
pub const KNOWN: &str = "known";

/// The option of embeddings that were combined from the parts of a dataset: a digest of the parts and of how they were combined. Their
/// inputs are the row digests of parts, not of batches.
pub const COMBINED: &str = "combined";

/// The metadata keys of every data file.
pub mod key {
    /// The prefix of all names.
    pub const PREFIX: &str = "plmkit.";
    /// The kind of file: see [`Kind`](crate::Kind).
    pub const KIND: &str = "plmkit.kind";
    /// The [contract version](crate::CONTRACT_VERSION).
    pub const CONTRACT: &str = "plmkit.contract";
    /// The program that wrote the file.
    pub const TOOL: &str = "plmkit.tool";
    /// Its version.
    pub const VERSION: &str = "plmkit.version";
    /// JSON array: digests of the inputs.
    pub const INPUTS: &str = "plmkit.inputs";
    /// JSON object: the options that the content depends on.
    pub const OPTIONS: &str = "plmkit.options";
    /// The [digest](crate::ByteDigest) of the list of rejected rows. Optional.
    pub const REJECTS: &str = "plmkit.rejects";
    /// JSON object: a [`ModelName`](crate::ModelName). In embeddings only.
    pub const MODEL: &str = "plmkit.model";
    /// JSON object: agreement of a sample of the rows with f32. In embeddings of int8 and fp8 only.
    pub const PARITY: &str = "plmkit.parity";
    /// The [row digest](crate::RowDigest).
    pub const ROWS: &str = "plmkit.rows";
}

/// The name of a model, for people. The digest in the options identifies the model: weights may change under one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelName {
    /// The Hugging Face Hub id `organisation/name`, or the name of the model's folder.
    pub name: String,
    /// The commit on the Hub, if known.
    pub revision: Option<String>,
}

/// The origin of a file. It holds no path, host name or time: the same work gives the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The program.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// Digests of the inputs, in order.
    pub inputs: Vec<String>,
    /// The options that the content depends on, the defaults included.
    pub options: BTreeMap<String, Value>,
    /// Digest of the list of rejected rows, if there is one. It is a result: files that differ only here are the same work.
    pub rejects: Option<String>,
    /// Agreement of a sample with f32, if measured. It is a result, like `rejects`.
    pub parity: Option<Value>,
    /// The name of the model. A model of another name with the same digest is the same work.
    pub model: Option<ModelName>,
}

impl Provenance {
    /// Describes the work of this version of `tool` on `inputs`, without options.
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

    /// Adds an option.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        self.options.insert(name.to_owned(), json!(value));
        self
    }

    /// Sets the digest of the list of rejected rows.
    #[must_use]
    pub fn with_rejects(mut self, digest: String) -> Self {
        self.rejects = Some(digest);
        self
    }

    /// Sets the agreement of a sample with f32.
    #[must_use]
    pub fn with_parity(mut self, parity: Option<Value>) -> Self {
        self.parity = parity;
        self
    }

    /// Sets the name of the model.
    #[must_use]
    pub fn with_model(mut self, model: ModelName) -> Self {
        self.model = Some(model);
        self
    }

    /// Returns the value of a text option.
    pub fn text_option(&self, name: &str) -> Option<&str> {
        self.options.get(name)?.as_str()
    }

    /// Returns the digest that identifies this work as the [`SOURCE`] of others.
    pub fn source(&self) -> String {
        let work = json!([self.inputs, self.options]);
        ByteDigest::compute(work.to_string().as_bytes()).to_string()
    }

    /// Returns the metadata entries of a finished file of `kind` whose row digest is `rows`.
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

    /// Parses the metadata of a file of `kind`.
    pub fn open(
        metadata: &BTreeMap<String, String>,
        kind: Kind,
    ) -> Result<(Self, RowDigest), ContentError> {
        let foreign = |what| Err(ContentError::Foreign(what));
        match metadata.get(key::KIND) {
            None => {
                let entry = key::KIND;
                return foreign(format!(
                    "not a plmkit {kind} file: it has no '{entry}' metadata entry"
                ));
            }
            Some(found) if *found != kind.to_string() => {
                let found = Quoted(found);
                return foreign(format!("expected a plmkit {kind} file, found kind {found}"));
            }
            Some(_) => {}
        }
        let entry = |key| metadata.get(key).ok_or_else(|| malformed_entry(key));
        check_contract(entry(key::CONTRACT)?)?;
        let provenance = Self {
            tool: entry(key::TOOL)?.clone(),
            version: entry(key::VERSION)?.clone(),
            inputs: parse(key::INPUTS, entry(key::INPUTS)?)?,
            options: parse(key::OPTIONS, entry(key::OPTIONS)?)?,
            rejects: metadata.get(key::REJECTS).cloned(),
            parity: optional(metadata, key::PARITY)?,
            model: optional(metadata, key::MODEL)?,
        };
        let rows = entry(key::ROWS)?.parse();
        Ok((provenance, rows.map_err(|()| malformed_entry(key::ROWS))?))
    }

    /// Relation *same output*: describes the first difference to `other`, or returns `None` if both are the result of the same work on
    /// the same inputs. The program's version does not count: a new release keeps finished files.
    ///
    /// ```
    /// use plmkit_contract::Provenance;
    /// let old = Provenance::new("pack-batches", vec!["a".into()]).with("max_batch_tokens", 8192);
    /// let new = Provenance::new("pack-batches", vec!["a".into()]).with("max_batch_tokens", 16384);
    /// assert_eq!(old.difference(&new).unwrap(), "max_batch_tokens was 8192 and is now 16384");
    /// assert_eq!(old.difference(&old), None);
    /// ```
    pub fn difference(&self, other: &Self) -> Option<String> {
        let what = if let Some(difference) = self.dataset_difference(other) {
            return Some(difference);
        } else if self.inputs != other.inputs || self.option_differs(other, SOURCE) {
            "the input is not the same"
        } else if self.option_differs(other, PACKING) {
            "the batches are packed otherwise"
        } else {
            return None;
        };
        Some(what.to_owned())
    }

    /// Relation *same checkpoint*: as [`difference`](Self::difference), and made by the same kernels. Otherwise, the output would not be
    /// that of an uninterrupted run, to the byte.
    pub fn checkpoint_difference(&self, other: &Self) -> Option<String> {
        self.difference(other).or_else(|| {
            let kernels = |work: &Self| work.options.get(KERNELS).cloned().unwrap_or_default();
            let (found, expected) = (kernels(self), kernels(other));
            self.option_differs(other, KERNELS)
                .then(|| format!("computed by the kernels {found}, and this run's are {expected}"))
        })
    }

    /// Relation *same dataset*: as [`difference`](Self::difference), of any inputs and in any packing. The source is an input.
    pub fn dataset_difference(&self, other: &Self) -> Option<String> {
        let (what, was, is) = self.changed_work(other)?;
        Some(format!("{what} was {was} and is now {is}"))
    }

    /// Relation *same dataset*, in words for files that are read together: `expected dtype "f32" as in a.parquet, found "bf16"`. This is
    /// the expected provenance; `place` follows its value: ` as in a.parquet`, or nothing.
    pub fn mismatch(&self, found: &Self, place: &str) -> Option<String> {
        let (what, expected, other) = self.changed_work(found)?;
        let [expected, found] = [(self, expected), (found, other)].map(|(work, value)| {
            let model = work.model.as_ref().filter(|_| what == "model");
            let name = model.map(|model| format!(" ({})", Quoted(&model.name)));
            value + &name.unwrap_or_default()
        });
        Some(format!("expected {what} {expected}{place}, found {found}"))
    }

    /// Whether the value of an option is another one than in `other`.
    pub fn option_differs(&self, other: &Self, name: &str) -> bool {
        self.options.get(name) != other.options.get(name)
    }

    /// Finds the first difference to `other` apart from inputs, source, packing and kernels. Returns its name, its value here and in
    /// `other`.
    fn changed_work<'a>(&'a self, other: &'a Self) -> Option<(&'a str, String, String)> {
        if self.tool != other.tool {
            let [old, new] = [self, other].map(|work| Quoted(&work.tool).to_string());
            return Some(("the program", old, new));
        }
        // Another model has other columns, too.
        let names = [&self.options, &other.options].map(BTreeMap::keys);
        let names = names.into_iter().flatten().map(String::as_str);
        let name = std::iter::once("model").chain(names).find(|name| {
            ![PACKING, KERNELS, SOURCE].contains(name) && self.option_differs(other, name)
        })?;
        let [old, new] = [self, other].map(|work| {
            let value = work.options.get(name);
            value.map_or("unset".into(), Value::to_string)
        });
        Some((name, old, new))
    }
}

fn optional<T: DeserializeOwned>(
    metadata: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>, ContentError> {
    metadata.get(key).map(|text| parse(key, text)).transpose()
}

fn parse<T: DeserializeOwned>(key: &str, text: &str) -> Result<T, ContentError> {
    serde_json::from_str(text).map_err(|_| malformed_entry(key))
}

fn malformed_entry(key: &str) -> ContentError {
    ContentError::Malformed(format!("metadata entry '{key}' is missing or malformed"))
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
    fn three_relations_count_more_or_less_of_a_difference() {
        let work = || {
            let work = Provenance::new("gpu-embed", vec!["a".into()]);
            work.with(PACKING, "one").with(KERNELS, "avx2")
        };
        let input = "the input is not the same";
        let packing = "the batches are packed otherwise";
        let kernels = "computed by the kernels \"avx2\", and this run's are \"scalar\"";
        let dtype = "dtype was unset and is now \"f32\"";
        let other_inputs = Provenance {
            inputs: Vec::new(),
            ..work()
        };
        let cases = [
            (work(), [None, None, None]),
            (other_inputs, [Some(input), Some(input), None]),
            (work().with(SOURCE, "b"), [Some(input), Some(input), None]),
            (
                work().with(PACKING, "b"),
                [Some(packing), Some(packing), None],
            ),
            (work().with(KERNELS, "scalar"), [None, Some(kernels), None]),
            (work().with("dtype", "f32"), [Some(dtype); 3]),
        ];
        for (other, expected) in cases {
            let found = [
                work().difference(&other),
                work().checkpoint_difference(&other),
                work().dataset_difference(&other),
            ];
            assert_eq!(found.each_ref().map(Option::as_deref), expected);
        }
        let named = work().with("model", "b").with_model(ModelName {
            name: "esm2".into(),
            revision: None,
        });
        assert_eq!(
            named.mismatch(&work(), " as in a.parquet").as_deref(),
            Some("expected model \"b\" ('esm2') as in a.parquet, found unset")
        );
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
