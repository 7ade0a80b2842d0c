//! What readers see of a folder, and what a crash leaves of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Lists what is in a folder and not hidden, sorted by name.
pub fn visible_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    Ok(paths)
}

/// Lists what is [visible](visible_in) in a folder and has one of the `extensions`.
pub fn files_in(folder: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let mut files = visible_in(folder)?;
    files.retain(|path| {
        let is_own = |found| extensions.iter().any(|&extension| found == extension);
        path.extension().is_some_and(is_own)
    });
    Ok(files)
}

/// Syncs a folder, so that a change of its names outlasts a loss of power. An empty path is the working folder.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let is_here = folder.as_os_str().is_empty();
    let folder = if is_here { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

/// Whether the name of a path starts with a dot. Readers of folders skip such files.
fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().starts_with(b".")
}
