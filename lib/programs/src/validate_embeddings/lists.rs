//! The lists of records beside shards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plmkit_check::AliasLists;
use plmkit_cli::Fault;
use plmkit_contract::{Kind, Manifest, alias_rows};
use plmkit_kit::path_text;
use plmkit_store::RecordListReader;

/// Removes these lists from the files that stand for shards, beside which they are.
pub(crate) fn without_lists(mut shards: Vec<PathBuf>) -> Vec<PathBuf> {
    let lists = Manifest::default()
        .lists()
        .map(|(name, ..)| OsStr::new(name));
    shards.retain(|path| path.file_name().is_none_or(|name| !lists.contains(&name)));
    shards
}

/// Reads the lists that a manifest at `path` has beside it.
pub(crate) fn read_lists(path: &Path, manifest: &Manifest) -> Result<AliasLists, Fault> {
    let mut lists = AliasLists::default();
    for (name, kind, expected) in manifest.lists() {
        let path = path.with_file_name(name);
        if expected.is_none() && !path.exists() {
            continue;
        }
        let mut reader = RecordListReader::open(&path, kind)?;
        while let Some(batch) = reader.next_batch()? {
            if kind != Kind::Peptides {
                alias_rows(&batch).for_each(|row| lists.add(&row, manifest));
            }
        }
        let digest = reader.digest().to_string();
        lists.add_file(&path_text(&path), &digest, expected);
    }
    lists.sort();
    Ok(lists)
}
