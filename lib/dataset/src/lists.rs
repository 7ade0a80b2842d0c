//! The lists of a dataset: rejected records and rows, and the records that are in no shard.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plmkit_contract::{
    DATASET_FILE, Kind, ListedFile, MANIFEST_FILE, Manifest, RejectsList, SHARD_PREFIX, SOURCE,
};
use plmkit_kit::{Stop, path_text};
use plmkit_store::{
    FileKind, RecordListReader, StoreError, read_byte_digest, read_rejects, read_sealed, visible_in,
};

use crate::error::DatasetError;
use crate::folder::SHARDS;
use crate::part::DatasetPart;

/// Reads these lists of rejects in `folder`: each must be as it was when the dataset was validated. One without lines need not be
/// kept.
pub(crate) fn read_lists(
    listed: &[ListedFile],
    folder: &Path,
) -> Result<Vec<RejectsList>, DatasetError> {
    let mut lists = Vec::new();
    for ListedFile { file, rows, digest } in listed {
        let path = folder.join(file);
        if *rows == 0 && !path.exists() {
            continue;
        }
        let list = read_rejects(&path).map_err(|error| error.of_input(FileKind::Rejects))?;
        check_digest(&path, [digest, &list.digest], DATASET_FILE)?;
        lists.push(list);
    }
    Ok(lists)
}

/// Opens a shard or a list of records, whose rows must have this digest.
pub(crate) fn open_list(
    path: &Path,
    kind: Kind,
    digest: &str,
) -> Result<RecordListReader, DatasetError> {
    let reader = RecordListReader::open(path, kind)?;
    check_digest(path, [digest, &reader.digest().to_string()], MANIFEST_FILE)?;
    Ok(reader)
}

/// Checks that a file has the digest that is expected of its rows, or of the bytes of a text, as `list` says.
pub(crate) fn check_digest(
    path: &Path,
    [expected, found]: [&str; 2],
    list: &str,
) -> Result<(), DatasetError> {
    if expected == found {
        return Ok(());
    }
    let is_text = path.extension() == Some("csv".as_ref());
    let of = if is_text {
        "altered: expected digest"
    } else {
        "expected rows"
    };
    let what = format!("{of} {expected}, as {list} says, found {found}");
    Err(DatasetError::content(path, what))
}

/// Reads the manifest beside the shards of which `part` was made; `None` if the dataset in `folder` has none. All that it names must be
/// there with the digests that it lists, and no other shard.
pub(crate) fn read_manifest(
    folder: &Path,
    part: &DatasetPart,
    stop: &Stop,
) -> Result<Option<Manifest>, DatasetError> {
    let shards = folder.join(SHARDS);
    let present = visible_in(&shards).unwrap_or_default();
    if present.is_empty() {
        return Ok(None);
    }
    let path = shards.join(MANIFEST_FILE);
    let manifest: Manifest =
        read_sealed(&path).map_err(|error| error.of_input(FileKind::Manifest))?;
    let source = part.provenance.text_option(SOURCE);
    if source.is_some_and(|source| source != manifest.work().source()) {
        let what = format!(
            "not the manifest of this dataset: expected that of the shards of which {} was made",
            path_text(&part.path)
        );
        return Err(DatasetError::content(&path, what));
    }
    for (file, kind, digest) in manifest.files() {
        StoreError::check(stop)?;
        let path = shards.join(file);
        match kind {
            Some(kind) => _ = open_list(&path, kind, digest)?,
            None => check_digest(&path, [digest, &read_byte_digest(&path)?], MANIFEST_FILE)?,
        }
    }
    let listed: HashSet<&str> = manifest.files().map(|(file, ..)| file).collect();
    let is_surplus = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(SHARD_PREFIX) && name.ends_with(".parquet") && !listed.contains(&*name)
    };
    if let Some(surplus) = present.iter().find(is_surplus) {
        let what = format!("not a shard of the dataset: {MANIFEST_FILE} does not list it");
        return Err(DatasetError::content(surplus, what));
    }
    Ok(Some(manifest))
}
