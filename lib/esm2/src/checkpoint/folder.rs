//! The files of a model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use plmkit_contract::{Exit, Quoted};
use serde_json::Value;

use super::weight_file::{WeightFile, open};
use crate::EsmError;

/// Weight files and indexes of several, with the names of the Hub. The first that exists is read.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

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
        let mut known = WEIGHTS.into_iter().map(|name| model.join(name));
        // ESMC was first released with one file in a folder.
        let first_release = with_extension(&model.join("data/weights"), "pth").unwrap_or_default();
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
    }
    if path.file_stem().is_some_and(|stem| stem == "adapter_model") {
        no_weights(format!("is {MERGE}"))
    } else if path.to_string_lossy().ends_with(".index.json") {
        indexed(model_folder(&path), &path)
    } else if is_weights(&path) {
        Ok(BTreeMap::from([(path, Vec::new())]))
    } else {
        no_weights("expected a folder, or a file with a name in .safetensors or .bin".to_owned())
    }
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
fn indexed(folder: &Path, index: &Path) -> Result<BTreeMap<PathBuf, Vec<String>>, EsmError> {
    let invalid = |reason: String| {
        EsmError::invalid(index, format!("not an index of weight files: {reason}"))
    };
    let json = read_json(index)?;
    let json: Value = serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
    let map = json["weight_map"]
        .as_object()
        .filter(|map| !map.is_empty())
        .ok_or_else(|| invalid("key 'weight_map': expected tensor names and files".to_owned()))?;
    let mut paths = BTreeMap::<_, Vec<String>>::new();
    for (tensor, file) in map {
        let name = file
            .as_str()
            .filter(|file| is_file_name(file) && is_weights(Path::new(file)))
            .ok_or_else(|| invalid(format!("expected a file name, found {file}")))?;
        let tensors = paths.entry(folder.join(name)).or_default();
        tensors.push(tensor.clone());
    }
    Ok(paths)
}

/// Whether a path is a plain name, which stays in its folder.
fn is_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none()
}

/// Reads a JSON file of a checkpoint. The index of the 15B model has 100 KiB.
pub(super) fn read_json(path: &Path) -> Result<Vec<u8>, EsmError> {
    const LIMIT: u64 = 16 << 20;
    let mut json = Vec::new();
    open(path)
        .and_then(|file| file.take(LIMIT + 1).read_to_end(&mut json))
        .map_err(|error| EsmError::cannot_open(path, &error))?;
    if json.len() as u64 > LIMIT {
        let reason = format!("expected at most {LIMIT} bytes of JSON, found more");
        return Err(EsmError::invalid(path, reason));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_cannot_name_a_file_outside_its_folder() {
        assert!(is_file_name("model-00001-of-00002.safetensors"));
        for name in ["", ".", "..", "/etc/passwd", "../model.safetensors", "a/b"] {
            assert!(!is_file_name(name), "{name}");
        }
    }

    #[test]
    fn the_first_of_the_known_names_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in WEIGHTS.into_iter().rev() {
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
}
