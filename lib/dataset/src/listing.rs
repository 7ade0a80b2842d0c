//! `dataset.json`, as far as its parts are compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plmkit_contract::{CombinedFrom, DATASET_FILE, ListedDataset, ListedFile, check_contract};
use plmkit_store::read_sealed;
use serde_json::{Map, Value, json};

use crate::{DatasetError, Part};

/// Reads the `dataset.json` of the dataset in `folder`; `None` if there is none.
pub fn read_dataset(folder: &Path) -> Result<Option<ListedDataset>, DatasetError> {
    let path = folder.join(DATASET_FILE);
    if let Ok(false) = path.try_exists() {
        return Ok(None);
    }
    let listed: ListedDataset = read_sealed(&path)?;
    check_contract(&listed.contract).map_err(|what| DatasetError::content(&path, what))?;
    Ok(Some(listed))
}

/// Checks that the dataset in `folder` passed the validation that wrote `listed`.
pub fn check_passed(listed: &ListedDataset, folder: &Path) -> Result<(), DatasetError> {
    if listed.passed() {
        return Ok(());
    }
    let what = "expected a dataset whose validation passed, found one that failed";
    Err(DatasetError::content(&folder.join(DATASET_FILE), what))
}

/// Checks that `parts` are the files of `folder` that `listed` lists, with the listed rows, as far as their footers say.
pub fn check_parts(
    listed: &ListedDataset,
    folder: &Path,
    parts: &[Part],
) -> Result<(), DatasetError> {
    let files = listed.embeddings.iter();
    let listed: BTreeMap<PathBuf, &str> = files
        .map(|file| (folder.join(&file.file), &*file.digest))
        .collect();
    let found: BTreeSet<&Path> = parts.iter().map(|part| &*part.path).collect();
    if let Some(stray) = found.iter().find(|path| !listed.contains_key(**path)) {
        let what = format!("not a part of the dataset: {DATASET_FILE} does not list it");
        return Err(DatasetError::content(stray, what));
    }
    if let Some(missing) = listed.keys().find(|path| !found.contains(&***path)) {
        let what = format!("no such file: expected every part that {DATASET_FILE} lists");
        return Err(DatasetError::missing(missing, what));
    }
    for part in parts {
        let (expected, found) = (listed[&part.path], part.digest);
        if expected != found.to_string() {
            let what = format!("expected rows {expected}, as {DATASET_FILE} says, found {found}");
            return Err(DatasetError::content(&part.path, what));
        }
    }
    Ok(())
}

/// The list of the dataset that `files` hold, combined from the parts that `listed` lists: what was found of these holds of their
/// rows. `shared` records have the rows of others.
pub(crate) fn combined_listing(
    mut listed: ListedDataset,
    files: Vec<ListedFile>,
    work: String,
    shared: u64,
) -> ListedDataset {
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let parts = std::mem::replace(&mut listed.embeddings, files);
    // What was combined before was made of the same parts.
    let (parts, shared) = match listed.combined.take() {
        Some(from) => (from.parts, from.shared),
        None => (parts, shared),
    };
    listed.combined = Some(CombinedFrom {
        work,
        parts,
        shared,
    });
    let others = [
        ("rows", json!(rows)),
        ("shards", json!([])),
        ("manifest", Value::Null),
    ];
    for (name, value) in others {
        listed.others.insert(name.to_owned(), value);
    }
    listed
}

/// Adds to a count of `dataset.json`, if it has it.
pub(crate) fn add_to(counts: &mut Map<String, Value>, name: &str, more: u64) {
    if let Some(count) = counts.get(name).and_then(Value::as_u64) {
        counts.insert(name.to_owned(), json!(count + more));
    }
}
