//! Opening inputs.

use std::fs::File;
use std::path::Path;

use plmkit_contract::{check_fetched, check_regular};

use crate::StoreError;

/// Opens an input that is read at any place: a regular file.
pub fn open_input(path: &Path) -> Result<File, StoreError> {
    let found = path.metadata().and_then(|found| check_regular(&found));
    let opened = found.and_then(|()| File::open(path));
    let fetched = opened.and_then(|file| check_fetched(&file).map(|()| file));
    fetched.map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })
}
