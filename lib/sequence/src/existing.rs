//! Whether the set of shards in a folder is the one that would be made.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plmkit_contract::{Manifest, Provenance};
use plmkit_store::{StoreError, read_byte_digest, read_rejects, read_sealed, read_shard};

use crate::folder::{FolderContents, OutputFolder};

/// What an earlier run of the same work left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// The whole set, verified.
    Complete,
    /// Some of its shards: it was killed while it gave them their names.
    Unfinished,
}

/// Compares what is in `folder` with the work `provenance`. Anything but an earlier run of the same work is an
/// error that says what differs.
pub(crate) fn compare(
    folder: &OutputFolder,
    found: &FolderContents,
    provenance: &Provenance,
) -> Result<Earlier, StoreError> {
    if found.has_manifest() {
        compare_set(folder, found, provenance)?;
        return Ok(Earlier::Complete);
    }
    for name in found.shards() {
        let path = folder.path().join(name);
        let shard = read_shard(&path).map_err(StoreError::of_existing)?;
        same(&path, &shard.provenance, provenance)?;
    }
    if found.shards().next().is_none() {
        return Err(exists(folder.rejects(), "no shard beside it"));
    }
    Ok(Earlier::Unfinished)
}

fn compare_set(
    folder: &OutputFolder,
    found: &FolderContents,
    provenance: &Provenance,
) -> Result<(), StoreError> {
    let path = folder.manifest();
    let manifest: Manifest = read_sealed(&path).map_err(StoreError::of_existing)?;
    let inputs = manifest.inputs.into_iter().map(|input| input.digest);
    let earlier = Provenance {
        version: manifest.version,
        options: manifest.options,
        ..Provenance::new(&manifest.tool, inputs.collect())
    };
    same(&path, &earlier, provenance)?;
    for name in found.shards() {
        if !manifest.shards.iter().any(|shard| shard.file == *name) {
            return Err(exists(folder.path().join(name), "not in the manifest"));
        }
    }
    for shard in &manifest.shards {
        let path = folder.path().join(&shard.file);
        let digest = read_shard(&path).map_err(listed)?.digest;
        if digest.to_string() != shard.digest {
            return Err(exists(path, "not the shard of the manifest"));
        }
    }
    let rejects = read_rejects(&folder.rejects()).map_err(listed)?.digest;
    same_list(folder.rejects(), &rejects, &manifest.rejects_digest)?;
    if let Some(expected) = manifest.renamed_digest {
        let renamed = read_byte_digest(&folder.renamed()).map_err(listed)?;
        same_list(folder.renamed(), &renamed, &expected)?;
    }
    Ok(())
}

fn same_list(path: PathBuf, found: &str, expected: &str) -> Result<(), StoreError> {
    if found == expected {
        return Ok(());
    }
    Err(StoreError::Malformed {
        path,
        what: format!(
            "damaged or altered: it has digest {found}, expected {expected} as in manifest.json; --force replaces it"
        ),
    })
}

/// An error of a file that belongs to a complete set.
fn listed(error: StoreError) -> StoreError {
    match error {
        StoreError::Open { path, source } if source.kind() == ErrorKind::NotFound => {
            StoreError::Malformed {
                path,
                what: "missing, though manifest.json says that the set is complete; --force replaces it"
                    .to_owned(),
            }
        }
        other => other.of_existing(),
    }
}

fn same(path: &Path, earlier: &Provenance, now: &Provenance) -> Result<(), StoreError> {
    match earlier.difference(now) {
        None => Ok(()),
        Some(difference) => Err(exists(path.to_owned(), &difference)),
    }
}

fn exists(path: PathBuf, difference: &str) -> StoreError {
    let difference = difference.to_owned();
    StoreError::Exists { path, difference }
}
