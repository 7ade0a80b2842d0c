//! A folder of results as the workflows lay it out, and the file that names it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plmkit_cli::{Exit, Fault, files_in, files_of};
use plmkit_contract::{io_text, path_text};

use crate::args::Config;
use crate::report::Listed;

/// The file that names a dataset, in its folder.
const NAME: &str = "dataset.json";

/// Where the parts of a dataset are.
#[derive(Clone, Debug)]
pub(crate) struct Dataset {
    folder: PathBuf,
}

impl Dataset {
    /// The dataset of a folder, or of its `dataset.json`.
    pub(crate) fn new(path: PathBuf) -> Self {
        let folder = match path.parent() {
            Some(parent) if path.file_name() == Some(NAME.as_ref()) => parent.to_owned(),
            _ => path,
        };
        Self { folder }
    }

    /// The file that names it.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// A path as `dataset.json` has it: from its folder on.
    pub(crate) fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.folder).unwrap_or(path)
    }

    /// Adds what is in the folder to what is to be checked.
    pub(crate) fn find(&self, config: &mut Config) -> Result<(), Fault> {
        let all = |name: &str, extension| files_of(vec![self.folder.join(name)], extension);
        config.embeddings = all("embeddings", "parquet")?;
        if !self.has_shards() {
            return Ok(());
        }
        config.shards = all("shards", "parquet")?;
        config.manifest = Some(self.folder.join("shards/manifest.json"));
        config.rejects = vec![self.folder.join("shards/rejects.csv")];
        // No list is written, or kept, of shards that were embedded as a whole.
        let lists = self.folder.join("rejects");
        if lists.is_dir() {
            let lists = files_in(&lists, "csv");
            let lists = lists.map_err(|error| fault(&self.folder, Exit::Io, &io_text(&error)))?;
            config.rejects.extend(lists);
        }
        Ok(())
    }

    /// Whether the shards are there: otherwise `dataset.json` says what is expected.
    pub(crate) fn has_shards(&self) -> bool {
        self.folder.join("shards").is_dir()
    }

    /// Removes the verdict of an earlier validation: from now on it is nobody's.
    pub(crate) fn forget(&self) -> Result<(), Fault> {
        let path = self.file();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let what = format!("cannot replace: {}", io_text(&error));
                Err(fault(&path, Exit::CannotCreate, &what))
            }
            _ => Ok(()),
        }
    }

    /// What `dataset.json` lists.
    pub(crate) fn listed(&self) -> Result<Listed, Fault> {
        let path = self.file();
        let text = fs::read(&path).map_err(|error| {
            let exit = match error.kind() {
                ErrorKind::NotFound => Exit::NoInput,
                _ => Exit::Io,
            };
            let what = format!(
                "expected a folder shards, or {NAME} of an earlier validation: {}",
                io_text(&error)
            );
            fault(&self.folder, exit, &what)
        })?;
        serde_json::from_slice(&text).map_err(|error| {
            let what = format!("not the {NAME} of a validation: {error}");
            fault(&path, Exit::Data, &what)
        })
    }
}

fn fault(path: &Path, exit: Exit, what: &str) -> Fault {
    Fault::new(exit, format!("{}: {what}", path_text(path)))
}
