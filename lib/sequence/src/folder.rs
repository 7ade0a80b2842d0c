//! The output folder of a set of shards.

use std::fs;

use plmkit_contract::{
    ALIASES_FILE, KNOWN_FILE, MANIFEST_FILE, Manifest, PEPTIDES_FILE, REJECTS_FILE, RENAMED_FILE,
};
use plmkit_store::{
    AtomicFile, StoreError, UnfinishedFolder, remove_file, strip_temporary_suffix, write_sealed,
};

use crate::shard_name::is_shard_name;

/// Whether a set of shards may have a file of this name. Other files of the folder are ignored.
fn is_of_a_set(name: &str) -> bool {
    let lists = [ALIASES_FILE, KNOWN_FILE, PEPTIDES_FILE];
    [MANIFEST_FILE, REJECTS_FILE, RENAMED_FILE].contains(&name)
        || lists.contains(&name)
        || is_shard_name(name)
}

/// Returns the names of the files of a set, sorted.
pub(crate) fn list_set(folder: &UnfinishedFolder) -> Result<Vec<String>, StoreError> {
    names(folder, is_of_a_set)
}

/// Removes the temporary files that a killed run left behind.
pub(crate) fn remove_temporaries(folder: &UnfinishedFolder) -> Result<(), StoreError> {
    let is_temporary = |name: &str| strip_temporary_suffix(name).is_some_and(is_of_a_set);
    let names = names(folder, is_temporary)?;
    names
        .iter()
        .try_for_each(|name| remove_file(&folder.file(name)))
}

fn names(
    folder: &UnfinishedFolder,
    are_chosen: impl Fn(&str) -> bool,
) -> Result<Vec<String>, StoreError> {
    let failed = StoreError::cannot_read(folder.path());
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.retain(|name| are_chosen(name));
    names.sort();
    Ok(names)
}

/// Publishes the files of a set and removes those of an older set. The manifest comes last and marks the set as complete. On an
/// error, no file of the new set stays.
pub(crate) fn publish_set(
    folder: &UnfinishedFolder,
    files: Vec<(String, AtomicFile)>,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    folder.check()?;
    remove_file(&folder.file(MANIFEST_FILE))?;
    let is_new = |name: &String| files.iter().any(|(new, _)| new == name);
    for name in list_set(folder)?.iter().filter(|name| !is_new(name)) {
        remove_file(&folder.file(name))?;
    }
    let mut published = Vec::new();
    let result = publish_all(folder, files, manifest, &mut published);
    // The files are those of another run if it has taken the folder over.
    folder.check()?;
    if result.is_err() {
        for name in published {
            // The first error is reported.
            let _ = remove_file(&folder.file(&name));
        }
    }
    result
}

fn publish_all(
    folder: &UnfinishedFolder,
    files: Vec<(String, AtomicFile)>,
    manifest: &Manifest,
    published: &mut Vec<String>,
) -> Result<(), StoreError> {
    // Recorded first: publishing may fail after the rename, at the fsync of the folder.
    for (name, file) in files {
        folder.check()?;
        published.push(name);
        file.finish()?;
    }
    published.push(MANIFEST_FILE.to_owned());
    write_sealed(AtomicFile::create(&folder.file(MANIFEST_FILE))?, manifest)
}

#[cfg(test)]
mod tests {
    use plmkit_contract::{Kind, Provenance};
    use plmkit_store::{ListWriter, RecordListWriter};

    use super::*;
    use crate::shard_name::ShardKey;

    /// Makes a set of `count` empty shards that is not published yet.
    fn set(folder: &UnfinishedFolder, count: usize) -> Vec<(String, AtomicFile)> {
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
        let folder = UnfinishedFolder::at(temporary.path());
        let old = set(&folder, 4);
        let manifest = Manifest::default();
        publish_set(&folder, old, &manifest).expect("publish");
        let new = set(&folder, 3);
        let in_the_way = temporary.path().join("shard-00001.parquet");
        fs::remove_file(&in_the_way).expect("remove");
        fs::create_dir(&in_the_way).expect("folder");
        assert!(publish_set(&folder, new, &manifest).is_err());
        let found = list_set(&folder).expect("found");
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
