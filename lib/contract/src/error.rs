//! Why the content of a file is refused.

/// Why bytes are not the file that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The file may be intact, but it has another program, kind or contract version.
    #[error("{0}")]
    Foreign(String),
    /// The file is damaged, or an entry is missing or malformed.
    #[error("{0}")]
    Malformed(String),
}

impl ContentError {
    /// The seal at the end of a file does not match its text.
    pub fn broken_seal() -> Self {
        Self::Malformed("damaged or altered: it does not match its seal".to_owned())
    }
}
