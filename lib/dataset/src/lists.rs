//! The lists of a dataset: rejected records and rows, and the records that are in no shard.

use std::path::Path;

use plmkit_contract::{
    AliasRow, DATASET_FILE, Kind, LIST_SHOWN, ListedFile, MANIFEST_FILE, Manifest, RejectsList,
    Stop, alias_rows, one_line,
};
use plmkit_store::{FileKind, RecordListReader, StoreError, read_rejects, read_sealed};
use serde_json::json;

use crate::folder::SHARDS;
use crate::{Dataset, DatasetError};

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

/// Opens a list of records, whose rows must have this digest, if that is known.
pub(crate) fn open_list(
    path: &Path,
    kind: Kind,
    listed: Option<&ListedFile>,
) -> Result<RecordListReader, DatasetError> {
    let reader = RecordListReader::open(path, kind)?;
    let found = reader.digest().to_string();
    match listed {
        Some(ListedFile { digest, .. }) if *digest != found => {
            let what = format!("expected rows {digest}, as manifest.json says, found {found}");
            Err(DatasetError::content(path, what))
        }
        _ => Ok(reader),
    }
}

impl Dataset {
    /// Reads the manifest beside the shards: it must be that of the dataset, as far as `dataset.json` repeats it.
    pub(crate) fn manifest(&self) -> Result<Manifest, DatasetError> {
        let path = self.path.join(SHARDS).join(MANIFEST_FILE);
        let manifest: Manifest =
            read_sealed(&path).map_err(|error| error.of_input(FileKind::Manifest))?;
        let Some(listed) = &self.listed else {
            return Ok(manifest);
        };
        let options = (json!(listed.shard_options), json!(manifest.options));
        let inputs = json!(listed.others.get("inputs"));
        let inputs = (inputs, json!(manifest.inputs));
        for (name, (expected, found)) in [("shard_options", options), ("inputs", inputs)] {
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

    /// Opens the lists of records beside the shards: those of the manifest; without one, those that are there.
    pub(crate) fn lists(&self) -> Result<Vec<(Kind, RecordListReader)>, DatasetError> {
        let shards = self.path.join(SHARDS);
        let has_manifest = shards.join(MANIFEST_FILE).exists();
        let manifest = has_manifest.then(|| self.manifest()).transpose()?;
        let mut lists = Vec::new();
        for (file, kind, listed) in manifest.unwrap_or_default().lists() {
            let path = shards.join(file);
            if listed.is_some() || (!has_manifest && path.exists()) {
                lists.push((kind, open_list(&path, kind, listed)?));
            }
        }
        Ok(lists)
    }

    /// Shows the records that are in no shard, of the list of this kind.
    pub(crate) fn each_record(
        &self,
        kind: Kind,
        stop: &Stop,
        mut see: impl FnMut(&AliasRow<'_>),
    ) -> Result<(), DatasetError> {
        for (_, mut list) in self.lists()?.into_iter().filter(|(of, _)| *of == kind) {
            while let Some(batch) = list.next_batch()? {
                StoreError::check(stop)?;
                alias_rows(&batch).for_each(|row| see(&row));
            }
        }
        Ok(())
    }
}
