//! Existing outputs.

use std::path::Path;

use plmkit_contract::{Provenance, RowDigest, Stop};

use crate::{BatchesFile, EmbeddingsReader, StoreError, remove_unfinished};

/// A complete output of the same work, verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// The digest of its rows.
    pub digest: RowDigest,
    /// The digest of its list of rejects.
    pub rejects: Option<String>,
}

/// Verifies the batches file at `path` as the result of `provenance`. Returns `None` if there is no file; any other file is an
/// error.
pub fn existing_batches(
    path: &Path,
    provenance: &Provenance,
    stop: &Stop,
) -> Result<Option<Existing>, StoreError> {
    existing(path, provenance, || {
        let file = BatchesFile::open(path, stop)?;
        Ok((file.provenance().clone(), file.digest()))
    })
}

/// Verifies the embeddings file at `path` as the result of `provenance`. Returns `None` if there is no file; any other file is
/// an error.
pub fn existing_embeddings(
    path: &Path,
    provenance: &Provenance,
    stop: &Stop,
) -> Result<Option<Existing>, StoreError> {
    existing(path, provenance, || {
        let reader = EmbeddingsReader::open(path)?;
        reader.verify(stop)?;
        Ok((reader.provenance().clone(), reader.digest()))
    })
}

fn existing(
    path: &Path,
    provenance: &Provenance,
    verify: impl FnOnce() -> Result<(Provenance, RowDigest), StoreError>,
) -> Result<Option<Existing>, StoreError> {
    // The writer reports a folder or a device in the way, or a missing folder.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let (found, digest) = verify().map_err(StoreError::of_existing)?;
    if let Some(difference) = found.difference(provenance) {
        return Err(StoreError::exists(path, difference));
    }
    // A killed run with --force may have left it.
    remove_unfinished(path);
    let rejects = found.rejects;
    Ok(Some(Existing { digest, rejects }))
}
