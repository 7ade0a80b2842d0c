//! The files of a model.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use plmkit_contract::{
    FIRST_RELEASE, MODEL_JSON_BYTES, WEIGHT_FILES, is_weight_index, parse_weight_index,
};
use plmkit_kit::Quoted;

use crate::content;

/// The description of a model.
pub(crate) const CONFIG: &str = "config.json";

/// The files that tell the ids of tokens, which a loader compares with those of the model.
pub(crate) const TOKENS: [&str; 4] = [
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "added_tokens.json",
];

/// Returns the weight file or the index that a loader prefers among `files`, which may be one of the [first
/// release](is_first_release).
pub(crate) fn weights<S: AsRef<str>>(files: &[S]) -> Option<&str> {
    let mut files = files.iter().map(AsRef::as_ref);
    let named = |name: &str| files.clone().find(|file| *file == name);
    WEIGHT_FILES.into_iter().find_map(named).or_else(|| {
        let first = files.find(|file| is_first_release(file))?;
        files.all(|file| !is_first_release(file)).then_some(first)
    })
}

/// Describes the files of which [`weights`] returns one.
pub(crate) fn expected_weights() -> String {
    format!("{} or one {FIRST_RELEASE}/*.pth", WEIGHT_FILES.join(" or "))
}

/// Whether a file has the weights of a model without a `config.json`.
pub(crate) fn is_first_release(name: &str) -> bool {
    let file = name.strip_prefix(FIRST_RELEASE);
    let file = file.and_then(|file| file.strip_prefix('/'));
    file.is_some_and(|file| is_plain(file) && Path::new(file).extension() == Some("pth".as_ref()))
}

/// Returns the files of a folder that a loader reads. The error names the missing file.
pub(crate) fn needed(folder: &Path) -> Result<Vec<String>, String> {
    let lacks = |name: &str| !folder.join(name).exists();
    let mut found = WEIGHT_FILES.map(str::to_owned).to_vec();
    found.retain(|name| !lacks(name));
    for entry in fs::read_dir(folder.join(FIRST_RELEASE))
        .into_iter()
        .flatten()
    {
        let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
        found.push(format!("{FIRST_RELEASE}/{}", name.to_string_lossy()));
    }
    let weights = weights(&found);
    if lacks(CONFIG) && !weights.is_some_and(is_first_release) {
        return Err(CONFIG.to_owned());
    }
    let described = [CONFIG].into_iter().chain(TOKENS);
    let described = described.filter(|name| !lacks(name)).map(str::to_owned);
    let mut files: Vec<_> = described.collect();
    let weights = weights.ok_or_else(expected_weights)?;
    files.push(weights.to_owned());
    if is_weight_index(weights) {
        // The loader reports a damaged index.
        files.extend(indexed(&folder.join(weights)).unwrap_or_default());
    }
    if let Some(missing) = files.iter().find(|file| lacks(file)) {
        return Err(missing.clone());
    }
    // Links to one blob: a server may have sent files under one name, and the last has overwritten the others.
    let mut blobs = BTreeSet::new();
    let shared = files.iter().find(|file| {
        let blob = folder.join(file).canonicalize();
        blob.is_ok_and(|blob| !blobs.insert(blob))
    });
    match shared {
        Some(shared) => Err(format!("{shared} of its own")),
        None => Ok(files),
    }
}

/// Returns the names of the files that an index lists.
pub(crate) fn indexed(index: &Path) -> io::Result<Vec<String>> {
    let mut json = Vec::new();
    content::open(index)?
        .take(MODEL_JSON_BYTES)
        .read_to_end(&mut json)?;
    let files = parse_weight_index(&json).map_err(io::Error::other)?;
    match files.keys().find(|name| !is_plain(name)) {
        Some(other) => Err(io::Error::other(format!(
            "expected a plain file name, found {}",
            Quoted(other)
        ))),
        None => Ok(files.into_keys().collect()),
    }
}

/// Whether a name needs no escapes in a URL, and is no path.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !["", ".", ".."].contains(&name) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_file_of_a_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let missing = || needed(folder.path()).err();
        assert_eq!(missing().as_deref(), Some("config.json"));
        write("config.json", "{}");
        assert!(missing().unwrap().starts_with("model.safetensors or "));
        write(
            "model.safetensors.index.json",
            r#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#,
        );
        write("1.safetensors", "");
        assert_eq!(missing().as_deref(), Some("2.safetensors"));
        // A loader prefers safetensors, so these would not be read.
        write("pytorch_model.bin", "");
        assert_eq!(missing().as_deref(), Some("2.safetensors"));
        write("2.safetensors", "");
        let files = needed(folder.path()).unwrap().join(" ");
        let expected = "config.json model.safetensors.index.json 1.safetensors 2.safetensors";
        assert_eq!(files, expected);
    }

    #[test]
    fn one_file_of_the_first_release_needs_no_description() {
        let one = "data/weights/esmc_300m_2024_12_v0.pth";
        assert_eq!(weights(&["README.md", one, "config.json"]), Some(one));
        let named = [one, "pytorch_model.bin"];
        assert_eq!(weights(&named), Some("pytorch_model.bin"));
        for others in [
            [one, "data/weights/b.pth"],
            ["data/weights/../b.pth", "weights/b.pth"],
            ["data/weights/b.bin", "data/weights/a/b.pth"],
        ] {
            assert_eq!(weights(&others), None, "{others:?}");
        }

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(one);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As a download that was cut leaves it.
        std::os::unix::fs::symlink("blob", &path).unwrap();
        assert_eq!(needed(folder.path()), Err(one.to_owned()));
        fs::write(path.with_file_name("blob"), "").unwrap();
        assert_eq!(needed(folder.path()), Ok(vec![one.to_owned()]));
    }

    #[test]
    fn files_that_are_one_file_are_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("blob"), "").unwrap();
        for name in ["config.json", "model.safetensors"] {
            std::os::unix::fs::symlink("blob", folder.path().join(name)).unwrap();
        }
        let missing = needed(folder.path()).unwrap_err();
        assert_eq!(missing, "model.safetensors of its own");
    }

    #[test]
    fn an_index_names_files_of_its_own_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.json");
        for text in [
            "",
            "{}",
            r#"{"weight_map": {}}"#,
            r#"{"weight_map": {"a": 1}}"#,
            r#"{"weight_map": {"a": "../b"}}"#,
            r#"{"weight_map": {"a": "b?c"}}"#,
        ] {
            fs::write(&path, text).unwrap();
            assert!(indexed(&path).is_err(), "{text}");
        }
    }
}
