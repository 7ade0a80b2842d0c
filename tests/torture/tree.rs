//! Checks of the files in a folder.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::common::Tree;

/// Whether a file is temporary, or in the folder of an unfinished run or dataset.
pub(crate) fn is_hidden(path: &Path) -> bool {
    let hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    let folders = ["plmkit-run", "plmkit-combine"].map(OsStr::new);
    let unfinished = |folder: &Path| {
        folder
            .extension()
            .is_some_and(|mark| folders.contains(&mark))
    };
    path.file_name().is_some_and(hidden) || path.ancestors().any(unfinished)
}

/// Whether a file is a saved part of an unfinished run, or a finished file of an unfinished dataset.
pub(crate) fn is_saved(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    is_hidden(path) && (name.starts_with(b"part-") || name == b"dataset.json")
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
