//! What is in a folder.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The files below a folder, hidden ones included, by their paths in it.
pub(crate) type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Reads everything below `folder`.
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

/// The files below a folder, hidden ones included.
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

/// Whether a file is no output: it has the name of a temporary one, or lies in the folder of an unfinished run.
pub(crate) fn is_hidden(path: &Path) -> bool {
    let hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let unfinished = |folder: &Path| folder.extension() == Some(OsStr::new("plmkit-run"));
    path.file_name().is_some_and(hidden) || path.parent().is_some_and(unfinished)
}

/// Whether a file is a part that an unfinished run has saved.
pub(crate) fn is_saved(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    is_hidden(path) && name.starts_with(b"part-")
}

/// Fails unless `found` is `expected` to the byte; says which files differ and prints none of them.
pub(crate) fn assert_same(found: &Tree, expected: &Tree, when: &str) {
    let names = |tree: &Tree| -> Vec<PathBuf> { tree.keys().cloned().collect() };
    assert_eq!(names(found), names(expected), "{when}");
    assert_subset(found, expected, when);
}

/// Fails unless every file of `found` is in `expected`, to the byte.
pub(crate) fn assert_subset(found: &Tree, expected: &Tree, when: &str) {
    for (path, bytes) in found {
        let same = expected.get(path).is_some_and(|expected| expected == bytes);
        assert!(same, "{when}: {} is not as it should be", path.display());
    }
}
