//! Compares an existing set of shards with the requested work.

use std::io::ErrorKind;
use std::path::Path;

use plmkit_contract::{Kind, ListedFile, Manifest, Provenance};
use plmkit_store::{
    AliasesReader, StoreError, read_byte_digest, read_rejects, read_sealed, read_shard,
};

use crate::folder::{FolderContents, OutputFolder};

/// The state of an earlier run of the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExistingSet {
    /// The set is complete and verified.
    Complete,
    /// The run was killed while it published the shards.
    Unfinished,
}

/// Compares the content of `folder` with the work `provenance`. Other work is an error that names the difference.
pub(crate) fn compare(
    folder: &OutputFolder,
    found: &FolderContents,
    provenance: &Provenance,
) -> Result<ExistingSet, StoreError> {
    if found.has_manifest() {
        compare_set(folder, found, provenance)?;
        return Ok(ExistingSet::Complete);
    }
    for name in found.shards() {
        let path = folder.path().join(name);
        let shard = read_shard(&path).map_err(StoreError::of_existing)?;
        expect_same_work(&path, &shard.provenance, provenance)?;
    }
    if found.shards().next().is_none() {
        return Err(StoreError::exists(&folder.rejects(), "no shard beside it"));
    }
    Ok(ExistingSet::Unfinished)
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
    expect_same_work(&path, &earlier, provenance)?;
    for name in found.shards() {
        if !manifest.shards.iter().any(|shard| shard.file == *name) {
            let path = folder.path().join(name);
            return Err(StoreError::exists(&path, "not in the manifest"));
        }
    }
    for shard in &manifest.shards {
        let path = folder.path().join(&shard.file);
        let digest = read_shard(&path).map_err(error_of_listed)?.digest;
        if digest.to_string() != shard.digest {
            return Err(StoreError::exists(&path, "not the shard of the manifest"));
        }
    }
    let rejects = read_rejects(&folder.rejects()).map_err(error_of_listed)?;
    expect_digest(&folder.rejects(), &rejects.digest, &manifest.rejects_digest)?;
    if let Some(expected) = manifest.renamed_digest {
        let renamed = read_byte_digest(&folder.renamed()).map_err(error_of_listed)?;
        expect_digest(&folder.renamed(), &renamed, &expected)?;
    }
    if let Some(list) = &manifest.aliases {
        verify_list(folder, list, Kind::Aliases)?;
    }
    if let Some(known) = &manifest.known {
        verify_list(folder, &known.list, Kind::Known)?;
    }
    Ok(())
}

/// Verifies a list of records whose residues another row has.
fn verify_list(folder: &OutputFolder, list: &ListedFile, kind: Kind) -> Result<(), StoreError> {
    let path = folder.path().join(&list.file);
    let mut reader = AliasesReader::open(&path, kind).map_err(error_of_listed)?;
    while reader.next_batch().map_err(error_of_listed)?.is_some() {}
    expect_digest(&path, &reader.digest().to_string(), &list.digest)
}

fn expect_digest(path: &Path, found: &str, expected: &str) -> Result<(), StoreError> {
    if found == expected {
        return Ok(());
    }
    let what = format_args!(
        "damaged or altered: it has digest {found}, expected {expected} as in manifest.json; --force replaces it"
    );
    Err(StoreError::malformed(path, what))
}

/// Converts an error of a file that the manifest lists: it must exist.
fn error_of_listed(error: StoreError) -> StoreError {
    match error {
        StoreError::Open { path, source } if source.kind() == ErrorKind::NotFound => {
            let what =
                "missing, though manifest.json says that the set is complete; --force replaces it";
            StoreError::malformed(&path, what)
        }
        other => other.of_existing(),
    }
}

fn expect_same_work(path: &Path, earlier: &Provenance, now: &Provenance) -> Result<(), StoreError> {
    match earlier.difference(now) {
        None => Ok(()),
        Some(difference) => Err(StoreError::exists(path, difference)),
    }
}
