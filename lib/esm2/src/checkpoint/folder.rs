//! Which files hold the weights of a model.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;
use plmkit_contract::Quoted;
use safetensors::tensor::Metadata;
use safetensors::{SafeTensorError, SafeTensors};
use serde_json::Value;

use super::tensor::StoredTensor;
use super::torch_file::Record;
use super::{CheckpointError, mapped, read_json, torch_file};

/// Files that weights lie in, or an index of those, as the Hub names them. The first that is there is read.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// A weight file in memory.
#[derive(Debug)]
pub(super) struct WeightFile {
    pub(super) path: PathBuf,
    bytes: Mmap,
    file: File,
    opened: Stamp,
}

/// What a file has another of when it was written to: size and times of change.
type Stamp = (u64, SystemTime, (i64, i64));

fn stamp(file: &File) -> io::Result<Stamp> {
    let found = file.metadata()?;
    let changed = (found.ctime(), found.ctime_nsec());
    Ok((found.len(), found.modified()?, changed))
}

impl WeightFile {
    fn open(path: PathBuf) -> Result<Self, CheckpointError> {
        let mapped = mapped::open(&path).and_then(|file| {
            let opened = stamp(&file)?;
            Ok((mapped::map(&file)?, file, opened))
        });
        match mapped {
            Ok((bytes, file, opened)) => Ok(Self {
                path,
                bytes,
                file,
                opened,
            }),
            Err(source) => Err(CheckpointError::Open { path, source }),
        }
    }

    /// An error if the file was written to since it was opened: what was read of it may be of two models.
    pub(super) fn unchanged(&self) -> Result<(), CheckpointError> {
        match stamp(&self.file) {
            Ok(now) if now == self.opened => Ok(()),
            _ => Err(CheckpointError::Changed {
                path: self.path.clone(),
            }),
        }
    }

    /// The tensors of the file, by the names that they have in it. What it says of their places and sizes has been
    /// checked against its own.
    pub(super) fn tensors(&self) -> Result<Vec<(String, StoredTensor<'_>)>, CheckpointError> {
        let path = || self.path.clone();
        if has_extension(&self.path, "safetensors") {
            let file = SafeTensors::deserialize(&self.bytes).map_err(|source| {
                let path = path();
                let what = damage(&self.bytes, &source);
                CheckpointError::Damaged { path, what }
            })?;
            let tensors = file.tensors().into_iter();
            Ok(tensors.map(|(name, view)| (name, view.into())).collect())
        } else {
            torch_file::tensors(&self.bytes).map_err(|source| {
                let path = path();
                CheckpointError::TorchFile { path, source }
            })
        }
    }

    /// The records of a file of PyTorch, by name.
    pub(super) fn records(&self) -> Result<Vec<(&str, Record<'_>)>, CheckpointError> {
        if has_extension(&self.path, "safetensors") {
            return Ok(Vec::new());
        }
        torch_file::records(&self.bytes).map_err(|source| CheckpointError::TorchFile {
            path: self.path.clone(),
            source,
        })
    }

    /// Lets go of the memory that holds `bytes` of the file.
    pub(super) fn forget(&self, bytes: &[u8]) {
        mapped::forget(&self.bytes, bytes);
    }
}

/// What is wrong with a safetensors file that is not as long as it claims, or else what its reader says.
fn damage(bytes: &[u8], error: &SafeTensorError) -> String {
    const LENGTH: usize = size_of::<u64>();
    let length = bytes
        .first_chunk()
        .map(|length| u64::from_le_bytes(*length));
    let end = LENGTH.saturating_add(length.unwrap_or_default() as usize);
    let expected = match error {
        SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => {
            format!("more than {end}")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            let header = serde_json::from_slice::<Metadata>(&bytes[LENGTH..end]);
            let data = header.map_or(0, |header| header.data_len());
            (end + data).to_string()
        }
        other => return other.to_string(),
    };
    format!("expected {expected} bytes, found {}", bytes.len())
}

/// The folder of a model that is named by its folder or by a weight file.
pub(super) fn model_folder(model: &Path) -> &Path {
    match model.parent() {
        Some(folder) if folder.as_os_str().is_empty() && !model.is_dir() => Path::new("."),
        Some(folder) if !model.is_dir() => folder,
        _ => model,
    }
}

/// Maps the one file, or the several, in which the weights of a folder or of a weight file lie.
pub(super) fn weight_files(model: &Path) -> Result<Vec<WeightFile>, CheckpointError> {
    paths(model)?.into_iter().map(WeightFile::open).collect()
}

fn paths(model: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let open = |source| CheckpointError::Open {
        path: model.to_owned(),
        source,
    };
    let path = if fs::metadata(model).map_err(open)?.is_dir() {
        let there = |name: &&str| model.join(name).exists();
        match WEIGHTS.into_iter().find(there) {
            Some(name) => model.join(name),
            None => {
                return Err(CheckpointError::NoWeights {
                    folder: model.to_owned(),
                    found: instead(model).map_err(open)?,
                });
            }
        }
    } else {
        model.to_owned()
    };
    if path.to_string_lossy().ends_with(".index.json") {
        indexed(model_folder(&path), &path)
    } else if is_weights(&path) {
        Ok(vec![path])
    } else {
        Err(CheckpointError::NotWeights { path })
    }
}

/// Whether a file can have weights in it, by its name. What is in the last two is as a rule fair-esm's, which is said
/// when they are read.
fn is_weights(path: &Path) -> bool {
    ["safetensors", "bin", "pt", "pth"]
        .iter()
        .any(|extension| has_extension(path, extension))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
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
                .filter(|file| is_plain(file) && is_weights(Path::new(file)))
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
    let checkpoint = |name: &&String| has_extension(Path::new(name), "pt");
    Ok(match names.iter().find(checkpoint) {
        Some(name) => format!(
            "{}, a fair-esm checkpoint: convert-fair-esm.py makes a folder of it that is read",
            Quoted(name)
        ),
        None => "none of them".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_is_not_what_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        fs::write(&path, b"weights").unwrap();
        let file = WeightFile::open(path.clone()).unwrap();
        assert!(file.unchanged().is_ok());
        std::thread::sleep(std::time::Duration::from_millis(20)); // the clock of the file system may be coarse
        fs::write(&path, b"changed").unwrap();
        let error = file.unchanged().unwrap_err();
        assert!(error.to_string().ends_with("changed while it was read"));
        assert_eq!(
            plmkit_contract::Failure::exit(&error),
            plmkit_contract::Exit::Transient
        );
    }

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
        assert!(found().ends_with("found none of them"));
        fs::write(folder.path().join("esm2_t6_8M_UR50D.pt"), b"").unwrap();
        assert!(
            found().contains("'esm2_t6_8M_UR50D.pt', a fair-esm checkpoint: convert-fair-esm.py")
        );
    }

    #[test]
    fn the_first_of_the_known_names_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "pytorch_model.bin.index.json",
            "pytorch_model.bin",
            "model.safetensors.index.json",
            "model.safetensors",
        ] {
            let path = folder.path().join(name);
            fs::write(&path, r#"{"weight_map": {"a": "part.bin"}}"#).unwrap();
            let expected = if name.contains("index") {
                folder.path().join("part.bin")
            } else {
                path.clone()
            };
            assert_eq!(paths(folder.path()).unwrap(), [expected.as_path()]);
            // By its own name, too.
            assert_eq!(paths(&path).unwrap(), [expected]);
            assert_eq!(model_folder(&path), folder.path());
        }
        assert_eq!(model_folder(folder.path()), folder.path());
    }
}
