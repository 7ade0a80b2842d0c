//! Inputs of a command line: files, and standard input, which is named `-`.

use std::fs::Metadata;
use std::io;
use std::path::Path;

/// Returns the name of an input in messages.
pub(crate) fn shown(input: &Path) -> &Path {
    if input == "-" {
        Path::new("standard input")
    } else {
        input
    }
}

/// Checks that an input exists. Does not open it: a pipe can be read once.
pub(crate) fn check(input: &Path) -> io::Result<()> {
    if input == "-" {
        return Ok(());
    }
    not_a_folder(&input.metadata()?)
}

/// Whether an input can be read twice. Pipes and standard input cannot.
pub(crate) fn can_be_read_again(input: &Path) -> bool {
    input != "-" && input.metadata().is_ok_and(|found| found.is_file())
}

pub(crate) fn not_a_folder(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        Err(io::ErrorKind::IsADirectory.into())
    } else {
        Ok(())
    }
}
