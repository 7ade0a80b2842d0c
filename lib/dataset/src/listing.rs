//! `dataset.json`, as far as its parts are compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{
    CombinedFrom, DATASET_FILE, LIST_SHOWN, ListedDataset, ListedFile, MANIFEST_FILE, Manifest,
    RejectsList, check_contract, one_line, path_text,
};
use plmkit_store::{FileKind, StoreError, read_rejects, read_sealed};
use serde_json::{Map, Value, json};

use crate::{DatasetError, Part};

/// The folders of a dataset's own files.
const OWN_FOLDERS: [&str; 3] = ["embeddings", "rejects", "shards"];

/// Reads the `dataset.json` of the dataset in `folder`; `None` if there is none.
pub(crate) fn read_dataset(folder: &Path) -> Result<Option<ListedDataset>, DatasetError> {
    let path = folder.join(DATASET_FILE);
    if let Ok(false) = path.try_exists() {
        return Ok(None);
    }
    let listed: ListedDataset = read_sealed(&path)?;
    check_contract(&listed.contract).map_err(|what| DatasetError::content(&path, what))?;
    Ok(Some(listed))
}

/// Checks that `parts` are the files of `folder` that `listed` lists, with the listed rows, as far as their footers say.
pub(crate) fn check_parts(
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

/// Reads these lists of rejects in `folder`: each must be as it was when the dataset was validated. One without lines need not be
/// kept.
pub(crate) fn read_lists<'a>(
    listed: impl IntoIterator<Item = &'a ListedFile>,
    folder: &Path,
) -> Result<Vec<RejectsList>, DatasetError> {
    let mut lists = Vec::new();
    for ListedFile { file, rows, digest } in listed {
        let path = folder.join(file);
        if *rows == 0 && !path.exists() {
            continue;
        }
        let list = read_rejects(&path).map_err(|error| error.of_input(FileKind::Rejects))?;
        if list.digest != *digest {
            let what = format!(
                "altered: expected digest {digest}, as {DATASET_FILE} says, found {}",
                list.digest
            );
            return Err(DatasetError::content(&path, what));
        }
        lists.push(list);
    }
    Ok(lists)
}

/// Reads the manifest in the folder `shards`: it must be that of the dataset, as far as `listed` repeats it.
pub(crate) fn read_manifest(
    shards: &Path,
    listed: Option<&ListedDataset>,
) -> Result<Manifest, DatasetError> {
    let path = shards.join(MANIFEST_FILE);
    let manifest: Manifest =
        read_sealed(&path).map_err(|error| error.of_input(FileKind::Manifest))?;
    let Some(listed) = listed else {
        return Ok(manifest);
    };
    let inputs = listed.others.get("inputs").cloned();
    for (name, expected, found) in [
        (
            "shard_options",
            json!(listed.shard_options),
            json!(manifest.options),
        ),
        ("inputs", json!(inputs), json!(manifest.inputs)),
    ] {
        if !expected.is_null() && expected != found {
            let [expected, found] =
                [expected, found].map(|value| one_line(&value.to_string(), LIST_SHOWN));
            let what = format!(
                "not the manifest of this dataset: expected {name} {expected}, as {DATASET_FILE} says, found {found}"
            );
            return Err(DatasetError::content(&path, what));
        }
    }
    Ok(manifest)
}

/// Checks that `combine` wrote every file of the folder that it is to replace, whose list is `listed`.
pub(crate) fn check_own(out: &Path, listed: &ListedDataset) -> Result<(), StoreError> {
    let files = listed.embeddings.iter().chain(&listed.rejects);
    let files = files.map(|file| &*file.file).chain([DATASET_FILE]);
    let own: BTreeSet<PathBuf> = files.map(|file| out.join(file)).collect();
    let mut folders = vec![out.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = StoreError::cannot_open(&folder);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let is_folder = entry.file_type().map_err(failed)?.is_dir();
            if is_folder && own.iter().any(|file| file.starts_with(&path)) {
                folders.push(path);
            } else if !own.contains(&path) {
                let stray = path_text(&path);
                let what = format!("--force would remove {stray}, which combine did not write");
                return Err(StoreError::cannot_create(out)(io::Error::other(what)));
            }
        }
    }
    Ok(())
}

/// Checks that an output is not among the own files of a dataset, whose readers would take it for one of them. `folder` may be that
/// of a dataset without [`DATASET_FILE`].
pub fn check_outside(output: &Path, folder: &Path) -> Result<(), DatasetError> {
    let parent = output.parent().filter(|parent| *parent != Path::new(""));
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let (Ok(parent), Some(name)) = (parent, output.file_name()) else {
        return Ok(());
    };
    let folder = folder.canonicalize().ok();
    for place in parent.join(name).ancestors() {
        if let (Some(dataset), Some(name)) = (place.parent(), place.file_name())
            && OWN_FOLDERS.iter().any(|own| name == *own)
            && (dataset.join(DATASET_FILE).exists() || folder.as_deref() == Some(dataset))
        {
            let [output, place] = [output, place].map(path_text);
            let what = format!(
                "--out {output}: expected a place outside {place}, which has the dataset's own files"
            );
            return Err(DatasetError::Usage(what));
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
