//! Kinds of file: regular files, streams and Git LFS pointers.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The start of a Git LFS pointer.
const POINTER: &[u8] = b"version https://git-lfs.";

/// Returns an error unless `found` is a regular file. Call it before opening a path: opening a pipe waits for a writer.
pub fn check_regular(found: &Metadata) -> io::Result<()> {
    if found.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else if found.is_file() {
        Ok(())
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

/// Whether `path` is a stream, which cannot be renamed: standard output (`-`), a descriptor of a shell, a pipe or a device.
/// `/dev/stdout` counts even if it is a regular file, because other processes may write to it.
///
/// ```
/// use plmkit_kit::is_stream;
/// assert!(["-", "/dev/null", "/dev/stdout"].into_iter().all(|path| is_stream(path.as_ref())));
/// assert!(!["a.json", "/"].into_iter().any(|path| is_stream(path.as_ref())));
/// ```
pub fn is_stream(path: &Path) -> bool {
    let descriptors = ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"];
    path == "-"
        || descriptors.iter().any(|stream| path.starts_with(stream))
        || path
            .metadata()
            .is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Returns an error if `file` is a Git LFS pointer, which a clone without Git LFS has in place of a large file.
pub fn check_fetched(file: &File) -> io::Result<()> {
    let mut start = [0; POINTER.len()];
    // The reader of the file reports errors.
    let count = file.read_at(&mut start, 0).unwrap_or(0);
    if &start[..count] == POINTER {
        let what = "expected the file itself, found a Git LFS pointer to it; git lfs pull fetches the file";
        return Err(io::Error::other(what));
    }
    Ok(())
}
