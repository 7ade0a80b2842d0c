//! Existing outputs.

use std::path::Path;

use plmkit_contract::{Kind, Provenance, RowDigest, Stop};

use crate::parquet::ParquetFile;
use crate::{BatchesFile, StoreError, remove_unfinished};

/// Verifies the output of `kind` at `path` as the result of `provenance`. Returns its own provenance and the digest of its rows, or
/// `None` if there is no file; any other file is an error. Polls `stop`.
pub fn find_existing(
    path: &Path,
    kind: Kind,
    provenance: &Provenance,
    stop: &Stop,
) -> Result<Option<(Provenance, RowDigest)>, StoreError> {
    // The writer reports a folder or a device in the way, or a missing folder.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let (found, digest) = verify_file(path, kind, stop).map_err(StoreError::of_existing)?;
    if let Some(difference) = found.difference(provenance) {
        return Err(StoreError::exists(path, difference));
    }
    // A killed run with --force may have left it.
    remove_unfinished(path);
    Ok(Some((found, digest)))
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
