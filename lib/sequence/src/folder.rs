//! The output folder of a set of shards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{
    ALIASES_FILE, KNOWN_FILE, MANIFEST_FILE, Manifest, PEPTIDES_FILE, REJECTS_FILE, RENAMED_FILE,
};
use plmkit_store::{
    AtomicFile, Lock, StoreError, remove_file, strip_temporary_suffix, write_sealed,
};

use crate::assignment::is_shard_name;

/// Whether a set of shards may have a file of this name. Other files of the folder are ignored.
fn is_of_a_set(name: &str) -> bool {
    let lists = [ALIASES_FILE, KNOWN_FILE, PEPTIDES_FILE];
    [MANIFEST_FILE, REJECTS_FILE, RENAMED_FILE].contains(&name)
        || lists.contains(&name)
        || is_shard_name(name)
}

/// The folder of a set of shards. Folders that were created for it are removed again unless a set is published.
pub(crate) struct OutputFolder {
    path: PathBuf,
    /// The created folders, outermost first.
    created: Vec<PathBuf>,
    lock: Option<Lock>,
}

impl OutputFolder {
    /// Creates the folder if it does not exist.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let mut missing: Vec<PathBuf> = path
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        let mut folder = Self {
            path: path.to_owned(),
            created: Vec::new(),
            lock: None,
        };
        for path in missing {
            fs::create_dir(&path).map_err(StoreError::cannot_create(&folder.path))?;
            folder.created.push(path);
        }
        if path.is_dir() {
            Ok(folder)
        } else {
            let not_a_folder = io::ErrorKind::NotADirectory.into();
            Err(StoreError::cannot_create(&folder.path)(not_a_folder))
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file of the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Locks the folder against other runs.
    pub(crate) fn claim(&mut self) -> Result<(), StoreError> {
        self.lock = Some(Lock::of_folder(&self.path)?);
        Ok(())
    }

    /// Whether the folder is still this run's, see [`Lock::check`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.lock.as_ref().map_or(Ok(()), Lock::check)
    }

    /// Returns the names of the files of a set, sorted.
    pub(crate) fn list(&self) -> Result<Vec<String>, StoreError> {
        self.names(is_of_a_set)
    }

    /// Removes the temporary files that a killed run left behind.
    pub(crate) fn remove_temporaries(&self) -> Result<(), StoreError> {
        let names = self.names(|name| strip_temporary_suffix(name).is_some_and(is_of_a_set))?;
        names.iter().try_for_each(|name| self.remove(name))
    }

    fn names(&self, are_chosen: impl Fn(&str) -> bool) -> Result<Vec<String>, StoreError> {
        let failed = StoreError::cannot_read(&self.path);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.retain(|name| are_chosen(name));
        names.sort();
        Ok(names)
    }

    /// Publishes the files of a set and removes those of an older set. The manifest comes last and marks the set as complete. On an
    /// error, no file of the new set stays.
    pub(crate) fn publish(
        mut self,
        files: Vec<(String, AtomicFile)>,
        manifest: &Manifest,
    ) -> Result<(), StoreError> {
        self.check()?;
        self.remove(MANIFEST_FILE)?;
        let is_new = |name: &String| files.iter().any(|(new, _)| new == name);
        for name in self.list()?.iter().filter(|name| !is_new(name)) {
            self.remove(name)?;
        }
        let mut published = Vec::new();
        let result = self.publish_all(files, manifest, &mut published);
        // The files are those of another run if it has taken the folder over.
        self.check()?;
        if result.is_ok() {
            self.created.clear();
        } else {
            for name in published {
                // The first error is reported.
                let _ = self.remove(&name);
            }
        }
        result
    }

    fn publish_all(
        &self,
        files: Vec<(String, AtomicFile)>,
        manifest: &Manifest,
        published: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        // Recorded first: publishing may fail after the rename, at the fsync of the folder.
        for (name, file) in files {
            self.check()?;
            published.push(name);
            file.finish()?;
        }
        published.push(MANIFEST_FILE.to_owned());
        write_sealed(AtomicFile::create(&self.file(MANIFEST_FILE))?, manifest)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        remove_file(&self.file(name))
    }
}

impl Drop for OutputFolder {
    fn drop(&mut self) {
        // The lock file is in the folder.
        self.lock = None;
        for folder in self.created.iter().rev() {
            // A folder that another process uses by now is not empty, and stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Kind, Provenance};
    use plmkit_store::{ListWriter, RecordListWriter};

    use super::*;
    use crate::assignment::ShardKey;

    /// Makes a set of `count` empty shards that is not published yet.
    fn set(folder: &OutputFolder, count: usize) -> Vec<(String, AtomicFile)> {
        let provenance = Provenance::new("fasta-shard", Vec::new());
        let shard = |index| {
            let name = ShardKey { long: false, index }.file_name();
            let writer =
                RecordListWriter::create(&folder.file(&name), Kind::Shard).expect("create");
            (name, writer.finish(&provenance).expect("finish").1)
        };
        let mut files: Vec<_> = (0..count).map(shard).collect();
        let rejects = ListWriter::create_rejects(&folder.file(REJECTS_FILE)).expect("create");
        files.push((REJECTS_FILE.to_owned(), rejects.finish().expect("finish").1));
        files
    }

    #[test]
    fn a_set_that_cannot_be_published_leaves_no_manifest() {
        let temporary = tempfile::tempdir().expect("temp folder");
        let open = || OutputFolder::open(temporary.path()).expect("open");
        let folder = open();
        let old = set(&folder, 4);
        let manifest = Manifest::default();
        folder.publish(old, &manifest).expect("publish");
        let folder = open();
        let new = set(&folder, 3);
        let in_the_way = temporary.path().join("shard-00001.parquet");
        fs::remove_file(&in_the_way).expect("remove");
        fs::create_dir(&in_the_way).expect("folder");
        assert!(folder.publish(new, &manifest).is_err());
        let found = open().list().expect("found");
        assert!(
            !found.contains(&MANIFEST_FILE.to_owned()),
            "the old manifest would vouch for a mixed set"
        );
        let shards: Vec<&String> = found.iter().filter(|name| is_shard_name(name)).collect();
        assert_eq!(shards, ["shard-00001.parquet", "shard-00002.parquet"]);
        let names = fs::read_dir(temporary.path()).expect("folder");
        let names = names.map(|entry| entry.expect("entry").file_name());
        let mut names = names.map(|name| name.to_string_lossy().into_owned());
        assert!(!names.any(|name| strip_temporary_suffix(&name).is_some()));
    }
}
