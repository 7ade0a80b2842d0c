//! The folder of a dataset as the workflows lay it out.

use std::path::{Path, PathBuf};

use plmkit_contract::{DATASET_FILE, MANIFEST_FILE};
use plmkit_kit::path_text;
use plmkit_store::{StoreError, files_in, visible_in};

use crate::DatasetError;

/// The folder of the parts.
pub(crate) const EMBEDDINGS: &str = "embeddings";
/// The folder of the shards, and of the lists beside them.
pub(crate) const SHARDS: &str = "shards";
/// The folder of the lists of rejects of `gpu-embed`.
pub(crate) const REJECTS: &str = "rejects";

/// Returns the folder of a dataset for its `dataset.json` and its folder of embeddings, however the path is spelled; any other path as
/// it is: a folder, or an embeddings file.
pub fn dataset_folder(path: PathBuf) -> PathBuf {
    let real = path.canonicalize().ok();
    let is_of = |folder: &&Path| {
        let own = own_files(folder).map(|own| own.canonicalize().ok());
        let is_dataset = folder.join(DATASET_FILE).exists() || has_shards(folder);
        is_dataset && real.is_some() && own.contains(&real)
    };
    // A link may lead to what a dataset has, or be what it has.
    let paths = [Some(&*path), real.as_deref()].into_iter().flatten();
    let folder = paths.filter_map(Path::parent).find(is_of);
    // The first dataset.json is yet to be written.
    let named = || path.parent().filter(|_| path.ends_with(DATASET_FILE));
    match folder.or_else(named).map(Path::to_owned) {
        Some(folder) if folder == *"" => ".".into(),
        Some(folder) => folder,
        None => path,
    }
}

/// Whether the shards of a dataset are there: otherwise `dataset.json` says what is expected.
pub fn has_shards(folder: &Path) -> bool {
    folder.join(SHARDS).is_dir()
}

/// Returns what no output may replace: the file that names the parts, and whatever readers find in their folder.
pub fn own_files(folder: &Path) -> [PathBuf; 2] {
    [DATASET_FILE, EMBEDDINGS].map(|name| folder.join(name))
}

/// Returns the embeddings files of a dataset, or the file itself, see [`embeddings_of`].
pub(crate) fn parts_at(path: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    embeddings_of(path)
}

/// Returns the embeddings files of a dataset, sorted by name, of which there is at least one.
pub fn embeddings_of(dataset: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let folder = dataset.join(EMBEDDINGS);
    if !folder.is_dir() {
        let what = if dataset.exists() {
            "expected the folder of one sample's results, with a folder embeddings in it"
        } else {
            "no such file or folder"
        };
        return Err(DatasetError::missing(dataset, what));
    }
    let parts = files_in(&folder, &["parquet"]).map_err(StoreError::cannot_open(&folder))?;
    if parts.is_empty() {
        let what = "expected files named *.parquet in this folder, found none";
        return Err(DatasetError::missing(&folder, what));
    }
    Ok(parts)
}

/// Returns the first of what lies among the parts and is none. What is hidden, readers pass over.
pub fn stray_of(dataset: &Path) -> Result<Option<PathBuf>, DatasetError> {
    let folder = dataset.join(EMBEDDINGS);
    let files = visible_in(&folder).map_err(StoreError::cannot_open(&folder))?;
    let mut files = files.into_iter();
    let is_part = |path: &PathBuf| path.extension() == Some("parquet".as_ref()) && path.is_file();
    Ok(files.find(|path| !is_part(path)))
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
            && [EMBEDDINGS, REJECTS, SHARDS].iter().any(|own| name == *own)
            && (dataset.join(DATASET_FILE).exists()
                || dataset.join(SHARDS).join(MANIFEST_FILE).exists()
                || folder.as_deref() == Some(dataset))
        {
            let [output, place] = [output, place].map(path_text);
            return Err(DatasetError::usage(format!(
                "--out {output}: expected a place outside {place}, which has the dataset's own files"
            )));
        }
    }
    Ok(())
}
