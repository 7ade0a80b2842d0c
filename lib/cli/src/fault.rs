//! How a program fails.

use plmkit_contract::{Exit, Failure, exit_of};

/// The end of a program that could not do its work: one line for people, one code for schedulers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    exit: Exit,
    message: String,
}

impl Fault {
    /// A failure of the kind `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// A command line that parses but does not make sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// The line for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: Failure> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new(exit_of(&error), error.to_string())
    }
}
