//! Existing outputs.

use std::path::Path;

use plmkit_contract::{Kind, Provenance, RowDigest};
use plmkit_kit::Stop;

use crate::parquet::ParquetFile;
use crate::{BatchesFile, StoreError, remove_unfinished};

/// Returns what the output of `kind` at `path` says of itself, or `None` if there is no file. Only its footer is read. A file that
/// `difference` tells apart from this run's work is an error, and so is any other.
pub fn identify(
    path: &Path,
    kind: Kind,
    difference: impl FnOnce(&Provenance) -> Option<String>,
) -> Result<Option<Provenance>, StoreError> {
    // The writer reports a folder or a device in the way, or a missing folder.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let found = match kind {
        Kind::Batches => BatchesFile::open_unverified(path).map(|file| file.provenance().clone()),
        _ => ParquetFile::of_kind(path, kind).map(|file| file.provenance().clone()),
    };
    let found = found.map_err(StoreError::of_existing)?;
    match difference(&found) {
        Some(difference) => Err(StoreError::exists(path, difference)),
        None => Ok(Some(found)),
    }
}

/// Verifies every byte of the output of `kind` at `path`, which was [identified](identify). Returns the digest of its rows. Polls
/// `stop`.
pub fn verify(path: &Path, kind: Kind, stop: &Stop) -> Result<RowDigest, StoreError> {
    let (_, digest) = verify_file(path, kind, stop).map_err(StoreError::of_existing)?;
    // A killed run with --force may have left it.
    remove_unfinished(path);
    Ok(digest)
}

/// Verifies every byte of the data file of `kind` at `path`. Returns its provenance and the digest of its rows. Polls `stop`.
pub fn verify_file(
    path: &Path,
    kind: Kind,
    stop: &Stop,
) -> Result<(Provenance, RowDigest), StoreError> {
    if kind == Kind::Batches {
        let file = BatchesFile::open(path, stop)?;
        return Ok((file.provenance().clone(), file.digest()));
    }
    let file = ParquetFile::of_kind(path, kind)?;
    file.verify(stop)?;
    Ok((file.provenance().clone(), file.digest()))
}
