//! Reports and manifests as JSON.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{AtomicFile, StoreError};

/// Writes `value` as indented JSON with a final newline.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let mut file = AtomicFile::create(path)?;
    let failed = |source| StoreError::Write {
        path: path.to_owned(),
        source,
    };
    serde_json::to_writer_pretty(&mut file, value).map_err(|error| failed(error.into()))?;
    file.write_all(b"\n").map_err(failed)?;
    file.finish()
}

/// Reads a JSON file.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let bytes = fs::read(path).map_err(|source| StoreError::Open {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::malformed(path, error))
}
