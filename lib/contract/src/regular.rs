//! What can be read at any place.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// How the few lines begin that Git LFS keeps in place of a file.
const POINTER: &[u8] = b"version https://git-lfs.";

/// An error unless `found` is a regular file. To be asked before a path is opened: opening a pipe waits for a writer.
pub fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else if found.is_file() {
        Ok(())
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Whether what is written to `path` flows on and cannot be renamed: standard output by the name `-`, what a shell handed over, a pipe or
/// a device. Behind `/dev/stdout` may be a regular file to which others write as well.
///
/// ```
/// use plmkit_contract::is_stream;
/// assert!(["-", "/dev/null", "/dev/stdout"].into_iter().all(|path| is_stream(path.as_ref())));
/// assert!(!["a.json", "/"].into_iter().any(|path| is_stream(path.as_ref())));
/// ```
pub fn is_stream(path: &Path) -> bool {
    let handed_over = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];
    path == "-"
        || handed_over.iter().any(|stream| path.starts_with(stream))
        || path
            .metadata()
            .is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// An error if `file` is a Git LFS pointer: what a clone without Git LFS has in place of a large file.
pub fn check_fetched(file: &File) -> io::Result<()> {
    let mut start = [0; POINTER.len()];
    // A read that fails is for whoever reads the file to tell.
    let count = file.read_at(&mut start, 0).unwrap_or(0);
    if &start[..count] == POINTER {
        let what = "expected the file itself, found a Git LFS pointer to it; git lfs pull fetches the file";
        return Err(io::Error::other(what));
    }
    Ok(())
}
