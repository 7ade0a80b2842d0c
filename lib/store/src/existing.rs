//! Outputs that are already there.

use std::path::Path;

use plmkit_contract::{Provenance, RowDigest, Stop};

use crate::{BatchesFile, EmbeddingsReader, StoreError, remove_unfinished};

/// What is at an output's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing.
    Absent,
    /// The finished result of the same work, verified.
    Complete {
        /// The digest of its rows.
        digest: RowDigest,
        /// That of the file which lists what is not in it.
        rejects: Option<String>,
    },
}

/// Looks for the result of `provenance` at `path`, a batches file. Anything else that is there is an error.
pub fn existing_batches(
    path: &Path,
    provenance: &Provenance,
    stop: &Stop,
) -> Result<Existing, StoreError> {
    existing(path, provenance, |path| {
        let file = BatchesFile::open(path, stop)?;
        Ok((file.provenance().clone(), file.digest()))
    })
}

/// Looks for the result of `provenance` at `path`, an embeddings file. Anything else that is there is an error.
pub fn existing_embeddings(
    path: &Path,
    provenance: &Provenance,
    stop: &Stop,
) -> Result<Existing, StoreError> {
    existing(path, provenance, |path| {
        let reader = EmbeddingsReader::open(path)?;
        reader.verify(stop)?;
        Ok((reader.provenance().clone(), reader.digest()))
    })
}

fn existing(
    path: &Path,
    provenance: &Provenance,
    verified: impl FnOnce(&Path) -> Result<(Provenance, RowDigest), StoreError>,
) -> Result<Existing, StoreError> {
    let exists = |difference| StoreError::Exists {
        path: path.to_owned(),
        difference,
    };
    // A folder or a device in the way, or no folder to write to, is for the writer to report.
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(Existing::Absent);
    }
    let (found, digest) = verified(path).map_err(StoreError::of_existing)?;
    match found.difference(provenance) {
        None => {
            // A run that was forced to write it again, and killed.
            remove_unfinished(path);
            Ok(Existing::Complete {
                digest,
                rejects: found.rejects,
            })
        }
        Some(difference) => Err(exists(difference)),
    }
}
