//! Failures in words.

use std::fmt::Display;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Exit, Failure, exit_of, exit_of_system, io_text, path_text};

/// A failure: a one-line message for people, and an exit code for schedulers. An error of a library has one for each case that
/// nothing else asks about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    exit: Exit,
    message: String,
}

impl Fault {
    /// Makes a failure with the exit code `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// Makes a usage error.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Makes the failure of a file or folder, whose path the message begins with.
    pub fn of_path(exit: Exit, path: &Path, what: impl Display) -> Self {
        Self::new(exit, format!("{}: {what}", path_text(path)))
    }

    /// Makes the failure that the system did not do `what`. The exit code is `exit`, unless the system's error has one.
    pub fn of_system(exit: Exit, what: impl Display, error: &io::Error) -> Self {
        let exit = exit_of_system(error).unwrap_or(exit);
        Self::new(exit, format!("{what}: {}", io_text(error)))
    }

    /// Makes the failure of what never fails: a bug.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn internal(error: impl ToString) -> Self {
        Self::new(Exit::Internal, error.to_string())
    }

    /// Returns the failure in other words.
    #[must_use]
    pub fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self::new(self.exit, reword(&self.message))
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: Failure> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new(exit_of(&error), error.to_string())
    }
}
