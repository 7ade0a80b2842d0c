//! The folder of a dataset as the workflows lay it out, and its parts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{DATASET_FILE, ListedDataset, ListedFile, SHARD_PREFIX, Stop};
use plmkit_store::StoreError;

use crate::listing::{check_parts, read_dataset, read_lists};
use crate::{DatasetError, Parts};

/// The folder of the parts.
const EMBEDDINGS: &str = "embeddings";

/// Where a dataset is: its folder, or a single embeddings file.
#[derive(Clone, Debug)]
pub struct DatasetFolder(PathBuf);

impl DatasetFolder {
    /// The dataset of a folder, of its `dataset.json`, or of an embeddings file.
    pub fn new(path: PathBuf) -> Self {
        match path.parent() {
            Some(parent) if path.file_name() == Some(DATASET_FILE.as_ref()) => {
                Self(parent.to_owned())
            }
            _ => Self(path),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether the shards are there: otherwise `dataset.json` says what is expected.
    pub fn has_shards(&self) -> bool {
        self.0.join("shards").is_dir()
    }

    /// The shards, sorted by name.
    pub(crate) fn shards(&self) -> Result<Vec<PathBuf>, DatasetError> {
        let folder = self.0.join("shards");
        let is_shard = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(SHARD_PREFIX) && is_parquet(path)
        };
        let mut files = visible(&folder).unwrap_or_default();
        files.retain(is_shard);
        if files.is_empty() {
            let what = "expected shard-*.parquet, which have the residues of the proteins: the folder of a sample has them, and no combined one";
            return Err(DatasetError::missing(&folder, what));
        }
        Ok(files)
    }

    /// A path as `dataset.json` has it: from its folder on.
    pub fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.0).unwrap_or(path)
    }

    /// What no output may replace: the file that names it, and whatever readers find in the folder of its parts.
    pub fn own(&self) -> [PathBuf; 2] {
        [DATASET_FILE, EMBEDDINGS].map(|name| self.0.join(name))
    }

    /// The embeddings files, sorted by name.
    pub fn embeddings(&self) -> Result<Vec<PathBuf>, DatasetError> {
        let folder = self.0.join(EMBEDDINGS);
        if !folder.is_dir() {
            let what = if self.0.exists() {
                "expected the folder of one sample's results, with a folder embeddings in it"
            } else {
                "no such file or folder"
            };
            return Err(DatasetError::missing(&self.0, what));
        }
        let files = visible(&folder).map_err(StoreError::cannot_open(&folder))?;
        let parts = files.into_iter().filter(|path| is_parquet(path));
        let parts: Vec<PathBuf> = parts.collect();
        if parts.is_empty() {
            let what = "expected files named *.parquet in this folder, found none";
            return Err(DatasetError::missing(&folder, what));
        }
        Ok(parts)
    }

    /// What lies among the parts and is none, sorted. What is hidden, readers pass over.
    pub fn strays(&self) -> Result<Vec<PathBuf>, DatasetError> {
        let folder = self.0.join(EMBEDDINGS);
        let mut files = visible(&folder).map_err(StoreError::cannot_open(&folder))?;
        files.retain(|path| !(is_parquet(path) && path.is_file()));
        Ok(files)
    }

    /// Opens the parts. Where `dataset.json` lists them and lists of rejects, they must be these; those of shards, if there are any.
    pub fn open(&self, stop: &Stop) -> Result<OpenedDataset, DatasetError> {
        self.open_if(false, stop)
    }

    /// Opens the parts of a dataset whose validation has passed, if there was one.
    pub fn open_passed(&self, stop: &Stop) -> Result<OpenedDataset, DatasetError> {
        self.open_if(true, stop)
    }

    fn open_if(&self, passed: bool, stop: &Stop) -> Result<OpenedDataset, DatasetError> {
        let (paths, listed) = if self.0.is_file() {
            (vec![self.0.clone()], None)
        } else {
            (self.embeddings()?, read_dataset(&self.0)?)
        };
        if passed {
            self.check_passed(listed.as_ref())?;
        }
        let parts = Parts::open(&paths, stop)?;
        if let Some(listed) = &listed {
            check_parts(listed, &self.0, &parts.parts)?;
            let is_kept =
                |list: &&ListedFile| self.has_shards() || !list.file.starts_with("shards/");
            read_lists(listed.rejects.iter().filter(is_kept), &self.0)?;
        }
        Ok(OpenedDataset {
            folder: self.clone(),
            parts,
            listed,
        })
    }

    fn check_passed(&self, listed: Option<&ListedDataset>) -> Result<(), DatasetError> {
        if listed.is_none_or(ListedDataset::passed) {
            return Ok(());
        }
        let what = "expected a dataset whose validation passed, found one that failed";
        Err(DatasetError::content(&self.0.join(DATASET_FILE), what))
    }
}

/// The parts of a dataset, which are those of its `dataset.json`.
#[derive(Debug)]
pub struct OpenedDataset {
    /// Where it is.
    pub folder: DatasetFolder,
    /// The parts.
    pub parts: Parts,
    /// Its `dataset.json`, if it has one.
    pub listed: Option<ListedDataset>,
}

impl OpenedDataset {
    /// Checks that the validation, if there was one, has passed.
    pub fn check_passed(&self) -> Result<(), DatasetError> {
        self.folder.check_passed(self.listed.as_ref())
    }

    /// All files that belong to it.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.folder.own().into();
        files.extend(self.parts.parts.iter().map(|part| part.path.clone()));
        for lists in ["shards", "rejects"] {
            files.extend(visible(&self.folder.0.join(lists)).unwrap_or_default());
        }
        files
    }
}

/// The entries of a folder that are not hidden, sorted.
fn visible(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == "parquet")
}
