//! The exit codes of all programs.

use std::error::Error;
use std::io::{self, ErrorKind};

/// The exit code of a program.
///
/// The numbers from 64 up follow `sysexits.h`. Of this table, a scheduler should retry only [`Exit::Transient`]. A program that a
/// signal stops dies of that signal: a shell sees 130 for SIGINT and 143 for SIGTERM.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::FromRepr, serde::Serialize, serde::Deserialize,
)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The program ran, and its verdict is negative.
    Negative = 1,
    /// The command line is invalid.
    Usage = 2,
    /// An input is malformed or damaged, or has another format than expected.
    Data = 65,
    /// An input does not exist or cannot be opened.
    NoInput = 66,
    /// A device, driver or shared library is not available.
    Unavailable = 69,
    /// A bug in plmkit.
    Internal = 70,
    /// An output cannot be created.
    CannotCreate = 73,
    /// Reading or writing failed (a full disk, a lost mount).
    Io = 74,
    /// The same command may succeed later (GPU lost, out of memory).
    Transient = 75,
}

impl Exit {
    /// Returns the exit code with this number, if a program of plmkit ends with it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::from_repr(code)
    }

    /// Returns the number that a shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// An error that knows its exit code.
///
/// Library errors implement it, so that programs need not interpret messages.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Returns the exit code of a program that ends with this error.
    fn exit(&self) -> Exit;
}

/// Returns the exit code of a program that ends with `error`: that of the system's error in it, or its own.
pub fn exit_of(error: &impl Failure) -> Exit {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(exit) = error.downcast_ref().and_then(exit_of_system) {
            return exit;
        }
        next = error.source();
    }
    error.exit()
}

/// Returns the exit code of a system error that means the same wherever it occurs; `None` for any other.
pub fn exit_of_system(error: &io::Error) -> Option<Exit> {
    /// `ENFILE` and `EMFILE`, for which Rust has no kind: no more files can be open.
    const TOO_MANY_FILES: [i32; 2] = [23, 24];
    match error.kind() {
        // Memory or a thread was refused.
        ErrorKind::OutOfMemory | ErrorKind::WouldBlock => Some(Exit::Transient),
        // A file is shorter than it was when it was opened, or than it says.
        ErrorKind::UnexpectedEof => Some(Exit::Data),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some(Exit::Io)
        }
        _ => error
            .raw_os_error()
            .filter(|errno| TOO_MANY_FILES.contains(errno))
            .map(|_| Exit::Io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open")]
    struct Open(#[source] io::Error);

    impl Failure for Open {
        fn exit(&self) -> Exit {
            Exit::NoInput
        }
    }

    #[test]
    fn some_system_errors_decide_the_exit_code() {
        for (errno, exit) in [
            (2, Exit::NoInput),
            (11, Exit::Transient),
            (12, Exit::Transient),
            (23, Exit::Io),
            (24, Exit::Io),
            (27, Exit::Io),
            (28, Exit::Io),
        ] {
            let error = Open(io::Error::from_raw_os_error(errno));
            assert_eq!(exit_of(&error), exit, "{errno}");
        }
        let cut = Open(ErrorKind::UnexpectedEof.into());
        assert_eq!(exit_of(&cut), Exit::Data);
    }

    #[test]
    fn codes_stay_out_of_the_range_schedulers_retry() {
        let codes = (0..=u8::MAX).filter(|code| Exit::from_code(*code).is_some());
        let codes: Vec<u8> = codes.collect();
        assert_eq!(codes, [0, 1, 2, 65, 66, 69, 70, 73, 74, 75]);
        assert!(codes.iter().all(|code| !(130..=145).contains(code)));
    }
}
