//! Earlier datasets, whose sequences are not embedded again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plmkit_contract::{
    DATASET_FILE, EmbeddingWork, KnownDataset, KnownSummary, ListedDataset, ListedFile,
};
use plmkit_kit::{Quoted, Stop, path_text};
use plmkit_store::{EmbeddingsFile, StoreError, read_sealed};
use serde_json::{Value, json};

use crate::error::ShardError;
use crate::id_table::IdTable;

/// The options of `fasta-shard` that decide which residues of a record are embedded. The others decide which records are
/// accepted.
pub const OF_RESIDUES: [&str; 3] = ["max_residues", "long_policy", "overlap"];

/// The known datasets, as their `dataset.json` describe them.
pub(crate) struct KnownDatasets {
    datasets: Vec<(PathBuf, ListedDataset, KnownDataset)>,
    /// What made the vectors of all.
    work: EmbeddingWork,
}

impl KnownDatasets {
    /// Reads the `dataset.json` of each dataset, given by its folder. Checks that sequences that were cut with
    /// these `options` can be found in them, and that their vectors belong together. Returns `None` if there are no datasets.
    pub(crate) fn open(
        paths: &[PathBuf],
        options: &BTreeMap<String, Value>,
    ) -> Result<Option<Self>, ShardError> {
        let mut known: Option<Self> = None;
        for path in paths {
            let file = path.join(DATASET_FILE);
            let dataset: ListedDataset = read_sealed(&file)?;
            let refused = |what: String| StoreError::malformed(&file, what);
            let summary = check(&dataset, options).map_err(refused)?;
            let work = dataset.work();
            let known = known.get_or_insert_with(|| Self {
                datasets: Vec::new(),
                work: work.clone(),
            });
            if let Some(difference) = known.work.difference(&work) {
                let first = path_text(&known.datasets[0].0);
                return Err(refused(format!("{difference}; expected the work of {first}")).into());
            }
            let mut others = known.datasets.iter();
            if others.any(|(_, _, other)| other.digest == summary.digest) {
                return Err(refused("given more than once".to_owned()).into());
            }
            known.datasets.push((file, dataset, summary));
        }
        Ok(known)
    }

    /// Returns the files that are read.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let parts = |(file, dataset, _): &(PathBuf, ListedDataset, _)| {
            let parts = dataset
                .embeddings
                .iter()
                .map(|part| file.with_file_name(&part.file));
            parts.chain([file.clone()]).collect::<Vec<_>>()
        };
        self.datasets.iter().flat_map(parts).collect()
    }

    /// Returns the option of shards that lack the sequences of these datasets.
    pub(crate) fn option(&self) -> Value {
        let datasets = self.datasets.iter();
        let digests: Vec<&str> = datasets.map(|(_, _, known)| &*known.digest).collect();
        json!({ "datasets": digests, "work": self.work })
    }

    /// Describes the datasets in the manifest beside the `list` of records.
    pub(crate) fn summary(&self, list: ListedFile) -> KnownSummary {
        let datasets = self.datasets.iter();
        KnownSummary {
            list,
            datasets: datasets.map(|(_, _, known)| known.clone()).collect(),
            work: self.work.clone(),
        }
    }

    /// Reads the sequence digests of each dataset, with the ordinal of the first row that has it, in at most 24 bytes for each.
    pub(crate) fn read(&self, stop: &Stop) -> Result<Vec<IdTable>, ShardError> {
        let mut all = Vec::with_capacity(self.datasets.len());
        for (file, dataset, _) in &self.datasets {
            let folder = file.parent().unwrap_or(Path::new(""));
            let mut table = IdTable::default();
            for part in &dataset.embeddings {
                let path = folder.join(&part.file);
                let embeddings = EmbeddingsFile::open(&path)?;
                let digest = embeddings.digest().to_string();
                if digest != part.digest {
                    let expected = &part.digest;
                    let what = format_args!(
                        "not the part that {DATASET_FILE} lists: expected rows {expected}, found {digest}"
                    );
                    return Err(StoreError::malformed(&path, what).into());
                }
                for group in 0..embeddings.groups()?.len() {
                    StoreError::check(stop)?;
                    for (ordinal, digest) in embeddings.keys(group)? {
                        // Of several rows with the same residues, the first.
                        table.add(digest.value(), ordinal.min(IdTable::MAX_VALUE));
                    }
                }
            }
            all.push(table);
        }
        Ok(all)
    }
}

/// Returns the first option that decides which residues of a protein are embedded, and has another value, with both.
pub fn residue_difference(
    expected: &BTreeMap<String, Value>,
    found: &BTreeMap<String, Value>,
) -> Option<(String, String, String)> {
    let mut differences = OF_RESIDUES.iter().map(|&name| {
        let [expected, found] = [expected, found].map(|options| {
            let value = options.get(name).unwrap_or(&Value::Null);
            value.as_str().map_or(value.to_string(), str::to_owned)
        });
        (format!("--{}", name.replace('_', "-")), expected, found)
    });
    differences.find(|(_, expected, found)| expected != found)
}

/// Checks that sequences can be found in a dataset. The error describes what is wrong.
fn check(
    dataset: &ListedDataset,
    options: &BTreeMap<String, Value>,
) -> Result<KnownDataset, String> {
    if !dataset.passed() {
        let found = Quoted(&dataset.outcome);
        return Err(format!(
            "expected a dataset whose validation passed, found outcome {found}: run validate-embeddings --dataset"
        ));
    }
    let Some(known) = &dataset.shard_options else {
        return Err("expected the options of its shards, found none".to_owned());
    };
    if let Some((option, expected, found)) = residue_difference(known, options) {
        return Err(format!(
            "expected {option} {expected}, with which this dataset was made, found {found}"
        ));
    }
    if dataset.work().has_separate_windows() {
        return Err(
            "expected a row for each protein, found --windows separate: the rows of windows do not tell the residues of their protein"
                .to_owned(),
        );
    }
    let rows = dataset
        .rows()
        .ok_or("expected the row digest of each part")?;
    Ok(KnownDataset {
        sample: dataset.sample.clone(),
        rows: rows.rows(),
        digest: rows.to_string(),
    })
}
