//! Reports and manifests as JSON.

use std::io::{Read, Write};
use std::path::Path;

use plmkit_contract::{Manifest, ManifestError};
use serde::Serialize;

use crate::limits::JSON_BYTES;
use crate::open::open_input;
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

/// Writes a manifest with its seal.
pub fn write_manifest(path: &Path, manifest: &Manifest) -> Result<(), StoreError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(manifest.to_json().as_bytes())
        .map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        })?;
    file.finish()
}

/// Reads a manifest and verifies it. Another program's file of the same name is [`StoreError::Exists`].
pub fn read_manifest(path: &Path) -> Result<Manifest, StoreError> {
    let mut text = Vec::new();
    open_input(path)?
        .take(JSON_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|source| StoreError::Read {
            path: path.to_owned(),
            source,
        })?;
    if text.len() as u64 > JSON_BYTES {
        return Err(StoreError::malformed(
            path,
            format_args!("expected a manifest of at most {JSON_BYTES} bytes"),
        ));
    }
    Manifest::from_json(&text).map_err(|error| match error {
        ManifestError::Foreign => StoreError::Exists {
            path: path.to_owned(),
            difference: error.to_string(),
        },
        ManifestError::Seal | ManifestError::Json(_) => StoreError::malformed(path, error),
    })
}
