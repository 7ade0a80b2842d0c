//! The files of a model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{
    FIRST_RELEASE, MODEL_JSON_BYTES, WEIGHT_FILES, is_weight_index, parse_weight_index,
};
use plmkit_kit::{Exit, Quoted};

use super::weight_file::{WeightFile, open};
use crate::config::{ModelConfig, check_weights};
use crate::error::EsmError;

/// What to do with the weights of a PEFT adapter.
const MERGE: &str = "a PEFT adapter, which is no model: load it on its model with PEFT, and save the result of \
    merge_and_unload() with save_pretrained";

/// Returns the folder of a model that is named by its folder or by a weight file.
pub(super) fn model_folder(model: &Path) -> &Path {
    match model.parent() {
        Some(folder) if folder.as_os_str().is_empty() && !model.is_dir() => Path::new("."),
        Some(folder) if !model.is_dir() => folder,
        _ => model,
    }
}

/// Opens the weight files of a model that is named by its folder, a weight file or an index.
pub(super) fn weight_files(model: &Path) -> Result<Vec<Arc<WeightFile>>, EsmError> {
    let files = paths(model)?.into_iter();
    files
        .map(|(path, indexed)| WeightFile::open(path, indexed).map(Arc::new))
        .collect()
}

/// Returns the weight files of a model, each with the names of the tensors that an index says are in it.
fn paths(model: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>, EsmError> {
    let open = |error: io::Error| EsmError::cannot_open(model, &error);
    let no_weights = |reason: String| Err(EsmError::of_file(Exit::NoInput, model, reason));
    let mut path = model.to_owned();
    if fs::metadata(model).map_err(open)?.is_dir() {
        if model.join("adapter_config.json").exists() {
            return no_weights(format!(
                "has {MERGE}; a weight file that is named is read without it"
            ));
        }
        let mut known = WEIGHT_FILES.into_iter().map(|name| model.join(name));
        // ESMC was first released with one file in a folder.
        let first_release = with_extension(&model.join(FIRST_RELEASE), "pth").unwrap_or_default();
        path = match (known.find(|path| path.exists()), &first_release[..]) {
            (Some(path), _) => path,
            (None, [path]) => path.clone(),
            (None, _) => {
                let fair_esm = with_extension(model, "pt").map_err(open)?;
                let found = fair_esm.first().and_then(|path| path.file_name());
                let found = found.map_or("none of them".to_owned(), |name| {
                    let name = name.to_string_lossy();
                    let name = Quoted(&name);
                    format!(
                        "{name}, a fair-esm checkpoint: convert-fair-esm.py makes a folder of it that is read"
                    )
                });
                return no_weights(format!(
                    "expected model.safetensors, pytorch_model.bin or an index of either, found {found}"
                ));
            }
        };
        let read = path.file_name().unwrap_or_default().to_string_lossy();
        check_json(&model.join("config.json"), |json| {
            check_weights(json, &read)
        })?;
    }
    if path.file_stem().is_some_and(|stem| stem == "adapter_model") {
        no_weights(format!("is {MERGE}"))
    } else if is_weight_index(&path.to_string_lossy()) {
        indexed(&path)
    } else if is_weights(&path) {
        Ok(BTreeMap::from([(path, Vec::new())]))
    } else {
        no_weights("expected a folder, or a file with a name in .safetensors or .bin".to_owned())
    }
}

/// Returns the folders that describe weights: that of their file, and for the first release those around it up to the model's.
pub(super) fn described_in(weights: &Path) -> Vec<&Path> {
    let mut folders: Vec<_> = weights.ancestors().skip(1).take(3).collect();
    if !folders[0].ends_with(FIRST_RELEASE) {
        folders.truncate(1);
    }
    folders
}

/// Returns the files of a folder with an extension, in the order of their names.
fn with_extension(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

/// Whether a file can contain weights, by its name. Files in `.pt` and `.pth` are usually fair-esm's; the reader says so.
fn is_weights(path: &Path) -> bool {
    let extension = path.extension().and_then(|found| found.to_str());
    extension.is_some_and(|found| ["safetensors", "bin", "pt", "pth"].contains(&found))
}

/// Returns the files that an index names.
fn indexed(index: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>, EsmError> {
    let invalid = |reason: String| EsmError::invalid(index, reason);
    let files = parse_weight_index(&read_json(index)?).map_err(invalid)?;
    if let Some(other) = files.keys().find(|name| !is_weights(name.as_ref())) {
        let what = "not an index of weight files: expected names in .safetensors or .bin";
        return Err(invalid(format!("{what}, found {}", Quoted(other))));
    }
    let files = files.into_iter();
    Ok(files
        .map(|(name, tensors)| (index.with_file_name(name), tensors))
        .collect())
}

/// Checks a JSON file of a checkpoint, if it is there.
pub(super) fn check_json(
    path: &Path,
    check: impl FnOnce(&[u8]) -> Result<(), String>,
) -> Result<(), EsmError> {
    // A link to nothing is there.
    if path
        .symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return Ok(());
    }
    check(&read_json(path)?).map_err(|reason| EsmError::invalid(path, reason))
}

/// Reads a `config.json`.
pub(super) fn read_config(path: &Path) -> Result<ModelConfig, EsmError> {
    let config = ModelConfig::from_json(&read_json(path)?);
    config.map_err(|error| EsmError::invalid(path, error))
}

/// Reads a JSON file of a checkpoint.
fn read_json(path: &Path) -> Result<Vec<u8>, EsmError> {
    let mut json = Vec::new();
    open(path)
        .and_then(|file| file.take(MODEL_JSON_BYTES + 1).read_to_end(&mut json))
        .map_err(|error| EsmError::cannot_open(path, &error))?;
    if json.len() as u64 > MODEL_JSON_BYTES {
        let reason = format!("expected at most {MODEL_JSON_BYTES} bytes of JSON, found more");
        return Err(EsmError::invalid(path, reason));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_known_names_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in WEIGHT_FILES.into_iter().rev() {
            let path = folder.path().join(name);
            fs::write(&path, r#"{"weight_map": {"a": "part.bin"}}"#).unwrap();
            let expected = if name.contains("index") {
                folder.path().join("part.bin")
            } else {
                path.clone()
            };
            for model in [folder.path(), &path] {
                let found: Vec<_> = paths(model).unwrap().into_keys().collect();
                assert_eq!(found, [expected.as_path()]);
            }
            assert_eq!(model_folder(&path), folder.path());
        }
        assert_eq!(model_folder(folder.path()), folder.path());
    }

    #[test]
    fn a_first_release_is_described_in_two_folders() {
        for (weights, folders) in [
            ("a/model.safetensors", &["a"][..]),
            ("a/data/weights/b.pth", &["a/data/weights", "a/data", "a"]),
            ("data/weights/b.pth", &["data/weights", "data", ""]),
            ("b.pth", &[""]),
        ] {
            let folders: Vec<_> = folders.iter().map(Path::new).collect();
            assert_eq!(described_in(weights.as_ref()), folders, "{weights}");
        }
    }
}
