//! Opening inputs.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::StoreError;

/// Opens an input that is read at any place: a regular file.
pub fn open_input(path: &Path) -> Result<File, StoreError> {
    // Looked at first: opening a pipe waits for a writer.
    let opened = path.metadata().and_then(|found| {
        if found.is_dir() {
            Err(io::ErrorKind::IsADirectory.into())
        } else if found.is_file() {
            File::open(path)
        } else {
            Err(io::Error::other("not a regular file"))
        }
    });
    opened.map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })
}
