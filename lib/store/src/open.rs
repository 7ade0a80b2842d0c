//! Opening inputs, and removing files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use plmkit_contract::{check_fetched, check_regular};

use crate::StoreError;

/// Opens an input that is read at any place: a regular file.
pub fn open_input(path: &Path) -> Result<File, StoreError> {
    let found = path.metadata().and_then(|found| check_regular(&found));
    let opened = found.and_then(|()| File::open(path));
    let fetched = opened.and_then(|file| check_fetched(&file).map(|()| file));
    fetched.map_err(StoreError::cannot_open(path))
}

/// Removes the file at `path` if there is one.
pub fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(StoreError::cannot_write(path)),
    }
}
