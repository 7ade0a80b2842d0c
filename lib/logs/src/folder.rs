//! The logs of a folder.

use std::path::{Path, PathBuf};

use plmkit_store::{StoreError, visible_in};

/// Returns the logs of a folder and of its subfolders, but not behind links, which may form a circle. Each folder that cannot
/// be read is `told`.
pub fn logs_below(
    folder: &Path,
    extension: &str,
    told: &mut impl FnMut(&Path, StoreError),
) -> Vec<PathBuf> {
    let paths = visible_in(folder).map_err(StoreError::cannot_open(folder));
    let paths = paths.unwrap_or_else(|error| {
        told(folder, error);
        Vec::new()
    });
    let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
    let (folders, mut logs): (Vec<_>, Vec<_>) = paths.into_iter().partition(is_folder);
    logs.retain(|path| path.extension() == Some(extension.as_ref()) && path.is_file());
    let below = folders.iter();
    logs.extend(below.flat_map(|folder| logs_below(folder, extension, told)));
    logs
}
