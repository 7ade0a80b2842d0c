//! Which files of a model folder hold the weights.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use memmap2::Mmap;
use serde_json::Value;

use super::{CheckpointError, mapped, read_json};

/// A weight file in memory.
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Mmap,
}

/// Maps the one file, or the several, in which the weights lie.
pub(super) fn weight_files(folder: &Path) -> Result<Vec<WeightFile>, CheckpointError> {
    paths(folder)?
        .into_iter()
        .map(|path| match mapped::map(&path) {
            Ok(bytes) => Ok(WeightFile { path, bytes }),
            Err(source) => Err(CheckpointError::Open { path, source }),
        })
        .collect()
}

fn paths(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let open = |source| CheckpointError::Open {
        path: folder.to_owned(),
        source,
    };
    if !fs::metadata(folder).map_err(open)?.is_dir() {
        return Err(open(io::ErrorKind::NotADirectory.into()));
    }
    if single.exists() {
        Ok(vec![single])
    } else if index.exists() {
        indexed(folder, &index)
    } else {
        Err(CheckpointError::NoWeights {
            folder: folder.to_owned(),
            found: instead(folder).map_err(open)?,
        })
    }
}

/// The files that an index names, each once.
fn indexed(folder: &Path, index: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let wrong = |what: String| CheckpointError::Index {
        path: index.to_owned(),
        what,
    };
    let json = read_json(index)?;
    let json: Value = serde_json::from_slice(&json).map_err(|error| wrong(error.to_string()))?;
    let map = json["weight_map"]
        .as_object()
        .filter(|map| !map.is_empty())
        .ok_or_else(|| wrong("key 'weight_map': expected tensor names and files".to_owned()))?;
    let files: BTreeSet<&str> = map
        .values()
        .map(|file| {
            file.as_str()
                .filter(|file| is_plain(file))
                .ok_or_else(|| wrong(format!("expected a file name, found {file}")))
        })
        .collect::<Result<_, _>>()?;
    Ok(files.into_iter().map(|file| folder.join(file)).collect())
}

/// Whether a name stays in its folder.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(Component::Normal(_))) && components.next().is_none()
}

/// What a folder has in place of weights that can be read.
fn instead(folder: &Path) -> io::Result<String> {
    let names: BTreeSet<String> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    let first = |stem: &str, extension: &str| {
        names.iter().find(|name| {
            name.starts_with(stem)
                && Path::new(name)
                    .extension()
                    .is_some_and(|found| found == extension)
        })
    };
    Ok(if let Some(name) = first("pytorch_model", "bin") {
        format!(
            "{name}, which is not read: save the model again with transformers' save_pretrained, which writes safetensors"
        )
    } else if let Some(name) = first("", "pt") {
        format!(
            "{name:?}, a fair-esm checkpoint, which is not read: take the Hugging Face one of the same name"
        )
    } else {
        "neither".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_cannot_name_a_file_outside_its_folder() {
        assert!(is_plain("model-00001-of-00002.safetensors"));
        for name in ["", ".", "..", "/etc/passwd", "../model.safetensors", "a/b"] {
            assert!(!is_plain(name), "{name}");
        }
    }

    #[test]
    fn a_folder_in_another_format_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let found = || paths(folder.path()).unwrap_err().to_string();
        assert!(found().ends_with("found neither"));
        fs::write(folder.path().join("esm2_t6_8M_UR50D.pt"), b"").unwrap();
        assert!(found().contains("\"esm2_t6_8M_UR50D.pt\", a fair-esm checkpoint"));
        fs::write(folder.path().join("pytorch_model-00001-of-00002.bin"), b"").unwrap();
        assert!(found().contains("pytorch_model-00001-of-00002.bin, which is not read: save"));
    }
}
