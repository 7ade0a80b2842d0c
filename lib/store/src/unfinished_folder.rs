//! A folder that one run at a time writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Lock, StoreError};

/// A folder that one run at a time writes.
///
/// Dropped, it is no longer locked, and the folders that were made for the run are removed if they are empty. A folder in which
/// something was saved or published stays.
///
/// ```
/// # let temporary = tempfile::tempdir().unwrap();
/// use plmkit_store::UnfinishedFolder;
/// let path = temporary.path().join("new/folder");
/// let mut folder = UnfinishedFolder::at(&path);
/// folder.make().unwrap();
/// folder.lock().unwrap();
/// assert!(UnfinishedFolder::at(&path).lock().is_err());
/// drop(folder);
/// assert!(!temporary.path().join("new").exists());
/// ```
#[derive(Debug)]
pub struct UnfinishedFolder {
    path: PathBuf,
    /// `None` before it is locked, and during drop: the lock file goes before the folder.
    lock: Option<Lock>,
    /// The folders to remove, innermost first.
    made: Vec<PathBuf>,
}

impl UnfinishedFolder {
    /// Takes the folder at `path`, which need not exist, without a lock.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            lock: None,
            made: Vec::new(),
        }
    }

    /// Takes the folder at `path`, in which `lock` has its file. It is removed if it is empty, whoever made it.
    pub fn temporary(path: PathBuf, lock: Lock) -> Self {
        Self {
            made: vec![path.clone()],
            path,
            lock: Some(lock),
        }
    }

    /// Makes the folder and those above it, as far as they are missing. Returns whether this run made the folder itself.
    pub fn make(&mut self) -> Result<bool, StoreError> {
        let failed = StoreError::cannot_create(&self.path);
        let ancestors = self.path.ancestors();
        let missing = ancestors.take_while(|folder| **folder != *"" && !folder.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        for folder in missing.into_iter().rev() {
            match fs::create_dir(&folder) {
                // Another run has just made it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                made => {
                    made.map_err(failed)?;
                    self.made.insert(0, folder);
                }
            }
        }
        if !self.path.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        Ok(self.made.first() == Some(&self.path))
    }

    /// Locks the folder against other runs, by a file in it.
    pub fn lock(&mut self) -> Result<(), StoreError> {
        self.lock = Some(Lock::acquire(&self.file(".plmkit-lock"), &self.path)?);
        Ok(())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether the folder is still this run's, see [`Lock::check`].
    pub fn check(&self) -> Result<(), StoreError> {
        self.lock.as_ref().map_or(Ok(()), Lock::check)
    }

    /// Whether another run may still write the files in the folder, see [`Lock::is_shared`].
    pub fn is_shared(&self) -> bool {
        self.lock.as_ref().is_some_and(Lock::is_shared)
    }
}

impl Drop for UnfinishedFolder {
    fn drop(&mut self) {
        self.lock = None;
        // Those that are empty: another process may use one by now.
        let _ = self.made.iter().try_for_each(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_others_and_folders_with_files_stay() {
        let temporary = tempfile::tempdir().expect("temp folder");
        let at = |name: &str| temporary.path().join(name);
        fs::create_dir(at("theirs")).expect("create");
        let mut folder = UnfinishedFolder::at(&at("theirs"));
        assert!(!folder.make().expect("make"), "it was there");
        folder.lock().expect("lock");
        drop(folder);
        assert!(at("theirs").is_dir());

        let mut folder = UnfinishedFolder::at(&at("ours/inner"));
        assert!(folder.make().expect("make"));
        fs::write(at("ours/result"), "").expect("write");
        drop(folder);
        assert!(!at("ours/inner").exists() && at("ours/result").exists());

        let mut folder = UnfinishedFolder::at(&at("ours/result"));
        let error = folder.make().expect_err("a file");
        assert!(error.to_string().contains("not a directory"), "{error}");
    }
}
