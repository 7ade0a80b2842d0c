//! Opening inputs.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::StoreError;

/// Opens an input, which is no folder.
pub fn open_input(path: &Path) -> Result<File, StoreError> {
    let opened = File::open(path).and_then(|file| {
        if file.metadata()?.is_dir() {
            Err(io::ErrorKind::IsADirectory.into())
        } else {
            Ok(file)
        }
    });
    opened.map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })
}
