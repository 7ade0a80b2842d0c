//! `dataset.json`, as far as datasets are read by it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plmkit_contract::{ContentError, ListedFile, check_contract, is_sealed};
use plmkit_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{DatasetError, Part};

/// The name of the file that lists a dataset, in its folder.
pub const DATASET_FILE: &str = "dataset.json";

/// The list of a dataset: its parts, and all that a validation found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listing {
    contract: String,
    outcome: String,
    /// The embeddings files.
    pub(crate) embeddings: Vec<ListedFile>,
    /// The parts that a combined dataset was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) combined: Option<CombinedFrom>,
    #[serde(flatten)]
    pub(crate) others: Map<String, Value>,
}

/// What a combined dataset was made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CombinedFrom {
    /// The digest of the parts and the options.
    pub(crate) work: String,
    /// The parts.
    pub(crate) parts: Vec<ListedFile>,
    /// The records whose rows are those of other records.
    #[serde(default)]
    pub(crate) shared: u64,
}

impl Listing {
    /// Reads the list of the dataset in `folder`; `None` if there is none.
    pub fn read(folder: &Path) -> Result<Option<Self>, DatasetError> {
        let path = folder.join(DATASET_FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(StoreError::cannot_open(&path))?,
        };
        if !is_sealed(&text) {
            let what = ContentError::broken_seal().to_string();
            return Err(DatasetError::content(&path, what));
        }
        let listing: Self = serde_json::from_slice(&text).map_err(|error| {
            DatasetError::content(
                &path,
                format!("not the {DATASET_FILE} of a validation: {error}"),
            )
        })?;
        check_contract(&listing.contract).map_err(|what| DatasetError::content(&path, what))?;
        Ok(Some(listing))
    }

    /// Whether the validation passed.
    pub fn passed(&self) -> bool {
        self.outcome == "pass"
    }

    /// Returns name and digest of each embeddings file.
    pub fn parts(&self) -> Vec<(String, String)> {
        self.embeddings.iter().map(ListedFile::part).collect()
    }

    /// Checks that `files` are the listed files of `folder`.
    pub fn check_files(&self, folder: &Path, files: &[PathBuf]) -> Result<(), DatasetError> {
        let listed: BTreeSet<PathBuf> = self.paths(folder).map(|(path, _)| path).collect();
        let found: BTreeSet<PathBuf> = files.iter().cloned().collect();
        if let Some(stray) = found.difference(&listed).next() {
            let what = format!("not a part of the dataset: {DATASET_FILE} does not list it");
            return Err(DatasetError::content(stray, what));
        }
        match listed.difference(&found).next() {
            Some(missing) => {
                let what = format!("no such file: expected every part that {DATASET_FILE} lists");
                Err(DatasetError::missing(missing, what))
            }
            None => Ok(()),
        }
    }

    /// Checks that `parts` are the listed files of `folder`, with the listed rows.
    pub fn check(&self, folder: &Path, parts: &[Part]) -> Result<(), DatasetError> {
        let paths: Vec<PathBuf> = parts.iter().map(|part| part.path.clone()).collect();
        self.check_files(folder, &paths)?;
        let listed: BTreeMap<PathBuf, &str> = self.paths(folder).collect();
        for part in parts {
            let (expected, found) = (listed[&part.path], part.digest);
            if expected != found.to_string() {
                let what =
                    format!("expected rows {expected}, as {DATASET_FILE} says, found {found}");
                return Err(DatasetError::content(&part.path, what));
            }
        }
        Ok(())
    }

    /// Path and row digest of each listed file.
    fn paths(&self, folder: &Path) -> impl Iterator<Item = (PathBuf, &str)> {
        let files = self.embeddings.iter();
        files.map(move |file| (folder.join(&file.file), &*file.digest))
    }
}
