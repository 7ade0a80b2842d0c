//! A folder that appears whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_store::{Lock, StoreError, hidden_name, sync_folder};

/// The folder under construction, until it gets its name.
const WORK: &str = ".plmkit-combine";
/// The folder that is replaced, until it is removed.
const OLD: &str = ".plmkit-old";
/// The folder of sorted runs in the folder under construction.
const RUNS: &str = "runs";
const LOCK: &str = ".plmkit-lock";

/// A folder under construction, beside its final path.
pub(crate) struct NewFolder {
    path: PathBuf,
    work: PathBuf,
    old: PathBuf,
    lock: Lock,
}

impl NewFolder {
    /// Locks the folder that will be at `path`, and creates the one under construction. What a killed run left is removed.
    pub(crate) fn claim(path: &Path) -> Result<Self, StoreError> {
        let failed = StoreError::cannot_create(path);
        if path.file_name().is_none() {
            return Err(failed(io::ErrorKind::InvalidFilename.into()));
        }
        let lock = Lock::acquire(&hidden(path, LOCK), path)?;
        let folder = Self {
            path: path.to_owned(),
            work: hidden(path, WORK),
            old: hidden(path, OLD),
            lock,
        };
        remove(&folder.work).map_err(failed)?;
        for part in ["embeddings", RUNS] {
            fs::create_dir_all(folder.work.join(part)).map_err(failed)?;
        }
        Ok(folder)
    }

    /// Removes what a run leaves that is killed after its folder has its name. What cannot be removed stays.
    pub(crate) fn clean_up(path: &Path) {
        let [lock, old] = [LOCK, OLD].map(|mark| hidden(path, mark));
        if (lock.exists() || old.exists())
            && let Ok(_lock) = Lock::acquire(&lock, path)
        {
            let _ = remove(&old);
        }
    }

    /// Whether the folder is still this run's, see [`Lock::check`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.lock.check()
    }

    /// Returns the folder under construction, if it is still this run's.
    pub(crate) fn work(&self) -> Result<&Path, StoreError> {
        self.check()?;
        Ok(&self.work)
    }

    /// Returns the folder of sorted runs, which [`publish`](Self::publish) removes.
    pub(crate) fn runs(&self) -> PathBuf {
        self.work.join(RUNS)
    }

    /// Renames the folder to its path. A folder that is there is removed.
    pub(crate) fn publish(self) -> Result<(), StoreError> {
        let failed = StoreError::cannot_write(&self.path);
        remove(&self.runs()).map_err(failed)?;
        let synced = sync_folder(&self.work.join("embeddings"));
        let synced = synced.and_then(|()| sync_folder(&self.work));
        self.check()?;
        synced.map_err(failed)?;
        if self.path.exists() {
            remove(&self.old).map_err(failed)?;
            fs::rename(&self.path, &self.old).map_err(failed)?;
        }
        let renamed = fs::rename(&self.work, &self.path);
        if let Err(lost) = self.check() {
            // Both folders are those of the other run.
            let _ = renamed.and_then(|()| fs::rename(&self.path, &self.work));
            let _ = fs::rename(&self.old, &self.path);
            return Err(lost);
        }
        renamed.map_err(failed)?;
        sync_folder(self.path.parent().unwrap_or("".as_ref())).map_err(failed)?;
        // A run that was killed between the two renames has left one, too.
        remove(&self.old).map_err(failed)
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if self.check().is_ok() {
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

/// Returns the path of a folder or file that belongs to the folder at `path`.
fn hidden(path: &Path, mark: &str) -> PathBuf {
    path.with_file_name(hidden_name(path.file_name().unwrap_or_default(), mark))
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
