//! Inputs of a command line.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::path_text;

/// An input of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input, named `-`.
    Stdin,
}

impl Input {
    /// Returns the name without the folder, as in the manifest.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            Self::Stdin => "-".to_owned(),
        }
    }

    /// Checks that the input exists. Does not open it: a pipe can be read once.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self {
            Self::File(path) => not_a_folder(&path.metadata()?),
            Self::Stdin => Ok(()),
        }
    }

    /// Whether the input can be read twice. Pipes and standard input cannot.
    pub(crate) fn can_be_read_again(&self) -> bool {
        match self {
            Self::File(path) => path.metadata().is_ok_and(|metadata| metadata.is_file()),
            Self::Stdin => false,
        }
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") {
            Self::Stdin
        } else {
            Self::File(path)
        }
    }
}

pub(crate) fn not_a_folder(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Ok(())
    }
}

/// The start of a message.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(&path_text(path)),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}
