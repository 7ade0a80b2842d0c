//! Failures of a program.

use std::fmt::Display;
use std::io;

use plmkit_contract::{Exit, Failure, exit_of, exit_of_system, io_text};

/// A failure of a program: a one-line message for people, and an exit code for schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Makes the failure that the system did not do `what`. The exit code is `exit`, unless the system's error has one.
    pub fn of_system(exit: Exit, what: impl Display, error: &io::Error) -> Self {
        let exit = exit_of_system(error).unwrap_or(exit);
        Self::new(exit, format!("{what}: {}", io_text(error)))
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
