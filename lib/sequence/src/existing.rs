//! Compares an existing set of shards with the requested work.

use std::io::ErrorKind;
use std::path::Path;

use plmkit_contract::{Kind, MANIFEST_FILE, Manifest, Provenance};
use plmkit_kit::Stop;
use plmkit_store::{
    FileKind, StoreError, UnfinishedFolder, read_byte_digest, read_sealed, verify_file,
};

use crate::shard_name::is_shard_name;

/// Compares the content of `folder` with the work `provenance`. Other work is an error that names the difference. Returns whether the
/// set is complete and verified; if not, the run was killed while it published the shards. Polls `stop`.
pub(crate) fn compare(
    folder: &UnfinishedFolder,
    found: &[String],
    provenance: &Provenance,
    stop: &Stop,
) -> Result<bool, StoreError> {
    if found.iter().any(|name| name == MANIFEST_FILE) {
        compare_set(folder, found, provenance, stop)?;
        return Ok(true);
    }
    for name in shards(found) {
        let path = folder.file(name);
        let verified = verify_file(&path, Kind::Shard, stop);
        let (earlier, _) = verified.map_err(StoreError::of_existing)?;
        if let Some(difference) = earlier.difference(provenance) {
            return Err(StoreError::exists(&path, difference));
        }
    }
    if shards(found).next().is_none() {
        let first = folder.file(&found[0]);
        return Err(StoreError::exists(&first, "no shard beside it"));
    }
    Ok(false)
}

/// Whether files of these names are of a set: one of them at least is recognised, and none is of another kind. Others may be damaged.
pub(crate) fn is_set(folder: &UnfinishedFolder, found: &[String]) -> bool {
    use FileKind::{Aliases, Known, Manifest, Peptides, Rejects, Renamed, Shard};
    let kinds = found.iter();
    let mut kinds = kinds.filter_map(|name| FileKind::detect(&folder.file(name)));
    let is_of_set = |kind| {
        matches!(
            kind,
            Aliases | Known | Manifest | Peptides | Rejects | Renamed | Shard
        )
    };
    kinds.next().is_some_and(is_of_set) && kinds.all(is_of_set)
}

/// Iterates over the names of shards.
fn shards(found: &[String]) -> impl Iterator<Item = &String> {
    found.iter().filter(|name| is_shard_name(name))
}

/// Compares the options of the set in `folder`, if there is one, with those of the work `provenance`, without its inputs.
pub(crate) fn compare_options(folder: &Path, provenance: &Provenance) -> Result<(), StoreError> {
    let path = folder.join(MANIFEST_FILE);
    if !path.exists() {
        return Ok(());
    }
    let mut earlier = read_manifest(&path)?.work();
    earlier.inputs.clone_from(&provenance.inputs);
    let difference = earlier.difference(provenance);
    difference.map_or(Ok(()), |difference| {
        Err(StoreError::exists(&path, difference))
    })
}

/// Reads the manifest of a set that exists.
fn read_manifest(path: &Path) -> Result<Manifest, StoreError> {
    read_sealed(path).map_err(StoreError::of_existing)
}

fn compare_set(
    folder: &UnfinishedFolder,
    found: &[String],
    provenance: &Provenance,
    stop: &Stop,
) -> Result<(), StoreError> {
    let path = folder.file(MANIFEST_FILE);
    let manifest = read_manifest(&path)?;
    if let Some(difference) = manifest.work().difference(provenance) {
        return Err(StoreError::exists(&path, difference));
    }
    for name in shards(found) {
        if !manifest.shards.iter().any(|shard| shard.file == *name) {
            let path = folder.file(name);
            return Err(StoreError::exists(&path, "not in the manifest"));
        }
    }
    for (name, kind, expected) in manifest.files() {
        let path = folder.file(name);
        let found = match kind {
            Some(kind) => verify_file(&path, kind, stop).map(|(_, digest)| digest.to_string()),
            None => read_byte_digest(&path),
        };
        let found = found.map_err(error_of_listed)?;
        if found != expected && kind == Some(Kind::Shard) {
            return Err(StoreError::exists(&path, "not the shard of the manifest"));
        }
        if found != expected {
            let what = format_args!(
                "damaged or altered: it has digest {found}, expected {expected} as in manifest.json; --force replaces it"
            );
            return Err(StoreError::malformed(&path, what));
        }
    }
    Ok(())
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
