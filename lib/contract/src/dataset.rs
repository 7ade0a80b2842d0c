//! `dataset.json`: the parts of a dataset, and what made their vectors.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    COMBINED, DESCRIPTION, KERNELS, KNOWN, PACKING, Provenance, Reason, RowDigest, SAMPLE, SOURCE,
    Sealed,
};

/// The name of the file that describes a dataset, in its folder.
pub const DATASET_FILE: &str = "dataset.json";

/// The content of `dataset.json`: the parts of a dataset, and all that a validation found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedDataset {
    /// The file contract's version.
    pub contract: String,
    /// The program that wrote it.
    #[serde(default)]
    pub tool: String,
    /// `pass` or `fail`.
    pub outcome: String,
    /// The sample, if it has a name.
    pub sample: Option<String>,
    /// The digest of the model.
    pub model_digest: Option<String>,
    /// What the vectors depend on beside the model.
    #[serde(default)]
    pub options: BTreeMap<String, Value>,
    /// The vector columns.
    #[serde(default)]
    pub columns: Vec<ListedColumn>,
    /// The options of `fasta-shard`; null if no manifest was given.
    pub shard_options: Option<BTreeMap<String, Value>>,
    /// The embeddings files, by their paths relative to `dataset.json`.
    pub embeddings: Vec<ListedFile>,
    /// The lists of rejects, by their paths relative to `dataset.json`; `rows` are their lines.
    #[serde(default)]
    pub rejects: Vec<ListedFile>,
    /// What a combined dataset was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combined: Option<CombinedFrom>,
    /// It is verified when the file is read, and made anew when one is written.
    #[serde(default, skip_serializing)]
    pub seal: IgnoredAny,
    /// What only people read.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// The number of records, and of the rejected ones by reason.
pub type RecordCounts = (u64, BTreeMap<Reason, u64>);

/// A vector column of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListedColumn {
    /// Its name.
    pub name: String,
    /// Its dimension and its type.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// What a combined dataset was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CombinedFrom {
    /// The digest of the parts and the options.
    pub work: String,
    /// The parts.
    pub parts: Vec<ListedFile>,
    /// The records whose rows are those of other records.
    #[serde(default)]
    pub shared: u64,
}

/// A data file in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// Its path, relative to the list.
    pub file: String,
    /// Its rows.
    pub rows: u64,
    /// Its row digest; of a text file, the digest of its bytes.
    pub digest: String,
}

impl Sealed for ListedDataset {
    const WHAT: &str = "dataset.json of validate-embeddings";
    const TOOL: &str = "validate-embeddings";
}

impl ListedFile {
    /// A file with its rows and its digest.
    pub fn new(file: &str, rows: u64, digest: &str) -> Self {
        Self {
            file: file.to_owned(),
            rows,
            digest: digest.to_owned(),
        }
    }

    /// A file whose rows have this digest.
    pub fn from_rows(file: &str, digest: RowDigest) -> Self {
        Self::new(file, digest.rows(), &digest.to_string())
    }
}

impl ListedDataset {
    /// Whether the validation passed.
    pub fn passed(&self) -> bool {
        self.outcome == "pass"
    }

    /// Returns what made the vectors.
    pub fn work(&self) -> EmbeddingWork {
        let mut options = self.options.clone();
        let columns: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
        options.insert("columns".to_owned(), json!(columns));
        options.insert("model".to_owned(), json!(self.model_digest));
        EmbeddingWork::new(&options)
    }

    /// Returns its counts, if it has them.
    pub fn counts(&self) -> Option<RecordCounts> {
        let records = self.others.get("records")?.as_u64()?;
        let rejected = BTreeMap::deserialize(self.others.get("rejected")?);
        Some((records, rejected.ok()?))
    }

    /// Returns the number of records that have no row, because other records or datasets have their residues.
    pub fn without_row(&self) -> u64 {
        let counts = ["aliases", "known"].map(|name| self.others.get(name).and_then(Value::as_u64));
        counts.into_iter().flatten().sum()
    }

    /// Returns the digest of all rows, with their number; `None` if a part has none. It does not depend on how rows are divided
    /// among parts.
    pub fn rows(&self) -> Option<RowDigest> {
        sum(&self.embeddings)
    }

    /// Returns the same of the parts that a combined dataset was made of, whose rows are among its rows.
    pub fn combined_rows(&self) -> Option<RowDigest> {
        self.combined.as_ref().and_then(|from| sum(&from.parts))
    }
}

fn sum(files: &[ListedFile]) -> Option<RowDigest> {
    files.iter().map(|file| file.digest.parse().ok()).sum()
}

/// What decides the vectors of a sequence: the options of its embeddings file, with `model`, the digest of the weights, but
/// without those that only tell where the sequence is from, or decide no more than last bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmbeddingWork(BTreeMap<String, Value>);

impl EmbeddingWork {
    /// Takes the `options` of an embeddings file.
    pub fn new(options: &BTreeMap<String, Value>) -> Self {
        let mut work = options.clone();
        for other in [COMBINED, PACKING, KERNELS, SOURCE, SAMPLE, DESCRIPTION] {
            work.remove(other);
        }
        Self(work)
    }

    /// Returns the work that must make the embeddings of batches with these options; `None` if any may. The batches lack the
    /// sequences of earlier datasets.
    pub fn required(options: &BTreeMap<String, Value>) -> Option<Self> {
        let known = options.get(KNOWN)?;
        serde_json::from_value(known.get("work")?.clone()).ok()
    }

    /// Whether long proteins are cut into windows.
    pub fn has_windows(&self) -> bool {
        self.0.contains_key(crate::WINDOWS)
    }

    /// Whether a dataset of this work has a row for each window of a long protein.
    pub fn has_separate_windows(&self) -> bool {
        self.0
            .get(crate::WINDOWS)
            .is_some_and(|how| how == "separate")
    }

    /// Describes the first difference between this work, which is expected, and `found`: `expected dtype "f32", found "bf16"`.
    pub fn difference(&self, found: &Self) -> Option<String> {
        let work = |work: &Self| Provenance {
            options: work.0.clone(),
            ..Provenance::new("", Vec::new())
        };
        work(self).mismatch(&work(found), "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(dtype: &str) -> Provenance {
        Provenance::new("gpu-embed", Vec::new())
            .with("columns", ["mean_4"])
            .with("model", "blake3-128:00")
            .with("dtype", dtype)
    }

    #[test]
    fn kernels_and_packing_are_not_part_of_the_work() {
        let one = EmbeddingWork::new(&work("f32").with(KERNELS, "avx2").options);
        let other = EmbeddingWork::new(&work("f32").with(PACKING, "a").options);
        assert_eq!(one.difference(&other), None);
        let other = EmbeddingWork::new(&work("bf16").options);
        assert_eq!(
            one.difference(&other).as_deref(),
            Some("expected dtype \"f32\", found \"bf16\"")
        );
    }

    #[test]
    fn a_dataset_was_made_by_the_work_of_its_files() {
        let mut options = work("f32").with(KERNELS, "avx2").options;
        let expected = EmbeddingWork::new(&options);
        options.retain(|name, _| !["columns", "model"].contains(&name.as_str()));
        let part = |digest: &str| ListedFile::new("embeddings/a.parquet", 1, digest);
        let mut dataset = ListedDataset {
            contract: "1".into(),
            tool: ListedDataset::TOOL.into(),
            outcome: "pass".into(),
            sample: None,
            model_digest: Some("blake3-128:00".into()),
            options,
            columns: vec![ListedColumn {
                name: "mean_4".into(),
                others: Map::new(),
            }],
            shard_options: None,
            embeddings: vec![part(&format!("xxh3-128-sum:{:032x}:1", 5)); 2],
            rejects: Vec::new(),
            combined: None,
            seal: IgnoredAny,
            others: Map::new(),
        };
        assert_eq!(dataset.work(), expected);
        let rows = dataset.rows().expect("digests");
        assert_eq!(rows.to_string(), format!("xxh3-128-sum:{:032x}:2", 10));
        dataset.embeddings.push(part(""));
        assert_eq!(dataset.rows(), None);
    }

    #[test]
    fn a_list_that_is_written_again_keeps_all_entries() {
        let text = crate::seal(&json!({
            "contract": "1", "tool": "validate-embeddings", "outcome": "pass", "sample": "a", "model_digest": null,
            "options": { "dtype": "f32" }, "columns": [{ "name": "mean_4", "of": "protein", "dimension": 64 }],
            "shard_options": { "dedup": true }, "embeddings": [], "rejects": [], "rows": 7, "checks": [{ "name": "coverage" }],
        }));
        let listed = ListedDataset::from_json(text.as_bytes()).expect("a list");
        let again = listed.to_json();
        assert_eq!(again.matches("\"seal\"").count(), 1);
        let entries = |text: &str| {
            let mut entries: Map<String, Value> = serde_json::from_str(text).expect("JSON");
            entries.remove("seal");
            entries
        };
        assert_eq!(entries(&again), entries(&text));
    }
}
