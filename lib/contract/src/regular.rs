//! What can be read at any place.

use std::fs::Metadata;
use std::io;

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
