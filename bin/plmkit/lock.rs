//! One run at a time in a folder of results.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plmkit_cli::Fault;
use plmkit_store::{Lock, StoreError};

/// The lock of a run on its folder of results, held until this value is dropped. A refused run leaves no folder.
pub(crate) struct RunLock {
    folder: PathBuf,
    /// Whether runs share the folder.
    shares: bool,
    lock: Option<Lock>,
    /// The folders that were made for it, the innermost first.
    created: Vec<PathBuf>,
}

impl RunLock {
    pub(crate) fn new(folder: &Path, shares: bool) -> Self {
        Self {
            folder: folder.to_owned(),
            shares,
            lock: None,
            created: Vec::new(),
        }
    }

    /// Locks the folder if it exists, before anything in it is looked at.
    pub(crate) fn acquire_existing(&mut self) -> Result<(), Fault> {
        if !self.shares && self.folder.is_dir() {
            self.lock = Some(Lock::of_folder(&self.folder)?);
        }
        Ok(())
    }

    /// Whether the folder is still this run's, see [`Lock::check`].
    pub(crate) fn check(&self) -> Result<(), Fault> {
        Ok(self.lock.as_ref().map_or(Ok(()), Lock::check)?)
    }

    /// Makes the folder and locks it, unless it is locked. A folder that appeared meanwhile is that of another run.
    pub(crate) fn acquire(&mut self) -> Result<(), Fault> {
        if self.shares || self.lock.is_some() {
            return Ok(());
        }
        let failed = StoreError::cannot_create(&self.folder);
        let ancestors = self.folder.ancestors();
        let missing = ancestors.take_while(|folder| **folder != *"" && !folder.exists());
        let missing = missing.map(Path::to_owned).collect();
        if let Some(parent) = self.folder.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && self.folder.is_dir() => {
                Err(StoreError::busy(&self.folder).into())
            }
            created => {
                created.map_err(failed)?;
                self.created = missing;
                self.acquire_existing()
            }
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if self.lock.take().is_some() {
            // Those that are empty.
            let mut created = self.created.iter();
            let _ = created.try_for_each(fs::remove_dir);
        }
    }
}
