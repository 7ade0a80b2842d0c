//! Why a checkpoint cannot be loaded.

use std::io;
use std::path::{Path, PathBuf};

use plmkit_contract::{Exit, Failure, Quoted, io_text, one_line, path_text};

/// Why a model folder or weight file cannot be loaded.
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
    /// A weight file changed while it was read.
    #[error("{}: changed while it was read", path_text(.path))]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The folder or file has no weights that can be read.
    #[error("{}: {}", path_text(.path), one_line(.reason, usize::MAX))]
    NoWeights {
        /// The folder or file.
        path: PathBuf,
        /// What was expected and what to do.
        reason: String,
    },
    /// A file is damaged, or not that of an ESM-2.
    #[error("{}: {}", path_text(.path), one_line(.reason, usize::MAX))]
    Invalid {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
}

impl CheckpointError {
    pub(super) fn invalid(path: &Path, reason: impl Into<String>) -> Self {
        Self::Invalid {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl Failure for CheckpointError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open { .. } | Self::NoWeights { .. } => Exit::NoInput,
            Self::Changed { .. } => Exit::Transient,
            Self::Invalid { .. } => Exit::Data,
        }
    }
}

/// Returns the count of some tensor names, and the first few.
pub(super) fn list_names(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let first: Vec<_> = names
        .iter()
        .take(SHOWN)
        .map(|name| Quoted(name).to_string())
        .collect();
    match (names.len(), first.join(", ")) {
        (0, _) => "0".to_owned(),
        (count @ 1..=SHOWN, first) => format!("{count} ({first})"),
        (count, first) => format!("{count} ({first}, …)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_file_stays_on_one_line() {
        let error = CheckpointError::invalid(Path::new("a"), "weight\n\u{1b}[31m").to_string();
        assert!(!error.contains(char::is_control), "{error}");
        assert_eq!(list_names(&["a\tb".into()]), "1 ('a\\tb')");
    }

    #[test]
    fn a_long_list_shows_its_beginning_and_its_length() {
        let names =
            |count: usize| list_names(&(0..count).map(|i| format!("t{i}")).collect::<Vec<_>>());
        assert_eq!(names(0), "0");
        assert_eq!(names(3), "3 ('t0', 't1', 't2')");
        assert_eq!(names(40), "40 ('t0', 't1', 't2', …)");
    }
}
