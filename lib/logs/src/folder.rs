//! The logs of a folder.

use std::io;
use std::path::{Path, PathBuf};

use plmkit_store::{StoreError, visible_in};

/// What is to be told of a path.
pub type Note = (PathBuf, String);

/// Returns the name of a log: that of its shard, if it is the log of one.
pub fn log_name(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".events").unwrap_or(&name).to_owned()
}

/// Returns the logs of a folder and of its subfolders, but not behind links, which may form a circle. Notes each folder that
/// cannot be read, and what is no file.
pub fn logs_below(folder: &Path, extension: &str, notes: &mut Vec<Note>) -> Vec<PathBuf> {
    let paths = visible_in(folder).unwrap_or_else(|error| {
        let note = StoreError::cannot_open(folder)(error).to_string();
        notes.push((folder.to_owned(), note));
        Vec::new()
    });
    let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let (folders, mut logs): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_folder);
    logs.retain(|path| path.extension() == Some(extension.as_ref()));
    for other in logs.extract_if(.., |path| !path.is_file()) {
        let note = StoreError::cannot_open(&other)(io::Error::other("not a regular file"));
        notes.push((other, note.to_string()));
    }
    let below = folders.iter();
    logs.extend(below.flat_map(|folder| logs_below(folder, extension, notes)));
    logs
}
