//! Why a folder is not a checkpoint that can be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

use plmkit_contract::{Exit, Failure, Quoted, io_text, one_line, path_text};
use safetensors::Dtype;

use super::torch_file::TorchFileError;
use crate::ConfigError;

/// What is wrong with a model folder, and where.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file or the folder cannot be opened.
    #[error("{}: cannot open: {}", path_text(.path), io_text(.source))]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A weight file was written to while it was read.
    #[error("{}: changed while it was read", path_text(.path))]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The folder has no weights that can be read.
    #[error("{path}: expected model.safetensors, pytorch_model.bin or an index of either, found {found}", path = path_text(folder))]
    NoWeights {
        /// The folder.
        folder: PathBuf,
        /// What it has instead, and what to do about it.
        found: String,
    },
    /// The path is that of a file, and not of one that weights are in.
    #[error("{path}: expected a folder, or a file with a name in .safetensors or .bin", path = path_text(path))]
    NotWeights {
        /// The path.
        path: PathBuf,
    },
    /// A JSON file is larger than any checkpoint's.
    #[error("{path}: expected at most {limit} bytes of JSON, found more", path = path_text(path))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// `config.json` is not that of an ESM-2.
    #[error("{path}: {source}", path = path_text(path))]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ConfigError,
    },
    /// The index of a checkpoint in several files is malformed.
    #[error(
        "{path}: not an index of weight files: {what}",
        path = path_text(path), what = one_line(what, usize::MAX)
    )]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A weight file is cut off or not safetensors at all.
    #[error(
        "{path}: damaged or not a safetensors file: {what}",
        path = path_text(path), what = one_line(what, usize::MAX)
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A weight file of PyTorch is not one that can be read.
    #[error("{path}: {source}", path = path_text(path))]
    TorchFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TorchFileError,
    },
    /// The tensors are not those of the model that `config.json` describes.
    #[error("{path}: not the tensors of this ESM-2: missing {missing}, unexpected {unexpected}", path = path_text(folder))]
    Names {
        /// The folder.
        folder: PathBuf,
        /// Tensors that the model needs.
        missing: Names,
        /// Tensors that it has no place for.
        unexpected: Names,
    },
    /// Two stored tensors are the same one of the model.
    #[error("{path}: tensor '{tensor}' is stored twice", path = path_text(folder))]
    Twice {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape.
    #[error("{path}: tensor '{tensor}': expected shape {expected:?}, found {found:?}", path = path_text(path))]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape that `config.json` gives it.
        expected: Vec<usize>,
        /// The shape stored.
        found: Vec<usize>,
    },
    /// A tensor has a type that is not read.
    #[error("{path}: tensor '{tensor}': expected type F32, F16 or BF16, found {found}", path = path_text(path))]
    Type {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type stored.
        found: Dtype,
    },
    /// A weight is infinite or not a number: no vector of this model could be computed.
    #[error("{path}: tensor '{tensor}': expected finite values, found {found} at index {index}", path = path_text(path))]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The place of the value.
        index: usize,
        /// The value.
        found: f32,
    },
}

/// Names of tensors, of which an error message shows the first few and the count.
#[derive(Clone, Debug)]
pub struct Names(pub Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        write!(f, "{}", self.0.len())?;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{}", if i == 0 { " (" } else { ", " }, Quoted(name))?;
        }
        match self.0.len() {
            0 => Ok(()),
            1..=SHOWN => f.write_str(")"),
            _ => f.write_str(", …)"),
        }
    }
}

impl Failure for CheckpointError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { .. } | Self::NoWeights { .. } | Self::NotWeights { .. } => Exit::NoInput,
            Self::Changed { .. } => Exit::Transient,
            _ => Exit::Data,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_of_itself_stays_on_one_line() {
        let path = PathBuf::from("model.safetensors");
        let what = "weight\n\u{1b}[31m".to_owned();
        let error = CheckpointError::Damaged { path, what }.to_string();
        assert!(!error.contains(char::is_control), "{error}");
        assert_eq!(Names(vec!["a\tb".into()]).to_string(), "1 ('a\\tb')");
    }

    #[test]
    fn a_long_list_shows_its_beginning_and_its_length() {
        let names = |count: usize| Names((0..count).map(|i| format!("t{i}")).collect()).to_string();
        assert_eq!(names(0), "0");
        assert_eq!(names(1), "1 ('t0')");
        assert_eq!(names(3), "3 ('t0', 't1', 't2')");
        assert_eq!(names(40), "40 ('t0', 't1', 't2', …)");
    }
}
