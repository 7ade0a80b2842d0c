//! The files in a folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, with hidden ones, by their relative paths.
pub(crate) type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Reads all files below `folder`.
pub(crate) fn tree(folder: &Path) -> Tree {
    paths(folder)
        .into_iter()
        .map(|path| {
            let bytes = fs::read(&path).expect("read");
            let path = path.strip_prefix(folder).expect("below it").to_owned();
            (path, bytes)
        })
        .collect()
}

/// Lists the files below a folder, with hidden ones.
pub(crate) fn paths(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            found.extend(paths(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Whether a file is temporary, or in the folder of an unfinished run.
pub(crate) fn is_hidden(path: &Path) -> bool {
    let hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let unfinished = |folder: &Path| folder.extension() == Some(OsStr::new("plmkit-run"));
    path.file_name().is_some_and(hidden) || path.parent().is_some_and(unfinished)
}

/// Whether a file is a saved part of an unfinished run.
pub(crate) fn is_saved(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    is_hidden(path) && name.starts_with(b"part-")
}

/// Expects that `found` and `expected` have the same files with the same bytes. Prints names, not bytes.
pub(crate) fn assert_same(found: &Tree, expected: &Tree, when: &str) {
    let names = |tree: &Tree| -> Vec<PathBuf> { tree.keys().cloned().collect() };
    assert_eq!(names(found), names(expected), "{when}");
    assert_subset(found, expected, when);
}

/// Expects that every file of `found` is in `expected`, with the same bytes.
pub(crate) fn assert_subset(found: &Tree, expected: &Tree, when: &str) {
    for (path, bytes) in found {
        let same = expected.get(path).is_some_and(|expected| expected == bytes);
        assert!(same, "{when}: {} differs", path.display());
    }
}
