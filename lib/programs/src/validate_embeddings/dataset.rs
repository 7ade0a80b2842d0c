//! A dataset that is validated: what is in its folder, and the verdict that is written there.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plmkit_cli::{Exit, Fault, Stop, ensure_no_stream, files_of};
use plmkit_contract::{
    DATASET_FILE, ListedDataset, MANIFEST_FILE, Manifest, REJECTS_FILE, RENAMED_FILE, RecordCounts,
    Sealed,
};
use plmkit_dataset::{Dataset, embeddings_of, has_shards, stray_of};
use plmkit_kit::io_text;
use plmkit_store::{files_in, read_byte_digest, read_input, write_report};

use super::lists::without_lists;

/// The files in the folder of a dataset; without shards, only the embeddings.
#[derive(Default)]
pub(crate) struct DatasetFiles {
    pub(crate) embeddings: Vec<PathBuf>,
    pub(crate) shards: Vec<PathBuf>,
    pub(crate) rejects: Vec<PathBuf>,
    pub(crate) manifest: Option<PathBuf>,
}

/// Lists what is in the folder and is to be checked.
pub(crate) fn dataset_files(dataset: &Path) -> Result<DatasetFiles, Fault> {
    let mut files = DatasetFiles {
        embeddings: embeddings_of(dataset)?,
        ..DatasetFiles::default()
    };
    if !has_shards(dataset) {
        return Ok(files);
    }
    let shards = dataset.join("shards");
    files.manifest = Some(shards.join(MANIFEST_FILE));
    files.rejects = vec![shards.join(REJECTS_FILE)];
    files.shards = without_lists(files_of(vec![shards], &["parquet"])?);
    // No list is written, or kept, of shards that were embedded as a whole.
    let lists = dataset.join("rejects");
    if lists.is_dir() {
        let lists = files_in(&lists, &["csv"]);
        let lists = lists.map_err(|error| Fault::of_path(Exit::Io, dataset, io_text(&error)))?;
        files.rejects.extend(lists);
    }
    Ok(files)
}

/// That every file of the manifest is there: without one there can be no verdict, and the earlier one stays.
pub(crate) fn check_files(dataset: &Path, manifest: &Manifest) -> Result<(), Fault> {
    for (file, _, digest) in manifest.files() {
        let path = dataset.join("shards").join(file);
        // No check reads it, and workflows hand it over to people alone.
        let is_renamed = file == RENAMED_FILE;
        if !is_renamed && !path.exists() {
            let what =
                "no such file: expected every file that manifest.json lists, or no folder shards";
            return Err(Fault::of_path(Exit::NoInput, &path, what));
        }
        if is_renamed && path.exists() && read_byte_digest(&path)? != digest {
            let what = format!("altered: expected digest {digest}, as manifest.json says");
            return Err(Fault::of_path(Exit::Data, &path, what));
        }
    }
    Ok(())
}

/// Writes `dataset.json`. One that says the same stays, since what is archived may be read-only; where it may, its time says when
/// it was last found right.
pub(crate) fn write_verdict(dataset: &Path, listed: &ListedDataset) -> Result<(), Fault> {
    let (path, text) = (dataset.join(DATASET_FILE), listed.to_json());
    if read_input(&path).is_ok_and(|found| found == text.as_bytes()) {
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(());
    }
    Ok(write_report(&path, &text)?)
}

/// That readers of the folder find its parts and nothing else. Without shards, they must be those of a validation that passed, whose
/// records and rejected records are returned.
pub(crate) fn check_folder(dataset: &Path) -> Result<Option<RecordCounts>, Fault> {
    ensure_no_stream(&[("--dataset", &dataset.join(DATASET_FILE))])?;
    if let Some(stray) = stray_of(dataset)? {
        let what = "among the embeddings, and no Parquet file: expected another place";
        return Err(Fault::of_path(Exit::Data, &stray, what));
    }
    if has_shards(dataset) {
        return Ok(None);
    }
    let opened = Dataset::open(dataset, Err, &Stop::default())?;
    let listed = opened.listed.ok_or_else(|| {
        let what = format!(
            "expected a folder shards, or {DATASET_FILE} of an earlier validation: no such file"
        );
        Fault::of_path(Exit::NoInput, dataset, what)
    })?;
    listed.counts().map(Some).ok_or_else(|| {
        let what = format!("expected counts of records and rejects in {DATASET_FILE}");
        Fault::of_path(Exit::Data, dataset, what)
    })
}
