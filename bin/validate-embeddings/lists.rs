//! The lists of records beside shards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plmkit_check::AliasLists;
use plmkit_cli::Fault;
use plmkit_contract::{
    ALIASES_FILE, AliasColumns, KNOWN_FILE, Kind, Manifest, PEPTIDES_FILE, path_text,
};
use plmkit_store::{FileKind, RecordListReader};

/// Removes these lists from the files that stand for shards, beside which they are.
pub(crate) fn without_lists(mut shards: Vec<PathBuf>) -> Vec<PathBuf> {
    let lists = [ALIASES_FILE, KNOWN_FILE, PEPTIDES_FILE].map(OsStr::new);
    shards.retain(|path| path.file_name().is_none_or(|name| !lists.contains(&name)));
    shards
}

/// Reads the lists that a manifest at `path` has beside it.
pub(crate) fn read_lists(path: &Path, manifest: &Manifest) -> Result<AliasLists, Fault> {
    let mut lists = AliasLists::default();
    let known = manifest.known.as_ref().map(|known| &known.list);
    for (name, kind, file_kind, expected) in [
        (
            ALIASES_FILE,
            Kind::Aliases,
            FileKind::Aliases,
            manifest.aliases.as_ref(),
        ),
        (KNOWN_FILE, Kind::Known, FileKind::Known, known),
        (
            PEPTIDES_FILE,
            Kind::Peptides,
            FileKind::Peptides,
            manifest.peptides.as_ref(),
        ),
    ] {
        let path = path.with_file_name(name);
        if expected.is_none() && !path.exists() {
            continue;
        }
        let mut reader =
            RecordListReader::open(&path, kind).map_err(|error| error.of_input(file_kind))?;
        while let Some(batch) = reader.next_batch()? {
            if kind != Kind::Peptides {
                AliasColumns::new(&batch)
                    .rows()
                    .for_each(|row| lists.add(&row, manifest));
            }
        }
        let digest = reader.digest().to_string();
        lists.add_file(&path_text(&path), &digest, expected);
    }
    lists.sort();
    Ok(lists)
}
