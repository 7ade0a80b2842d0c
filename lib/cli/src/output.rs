//! Standard output.

use std::io::{self, Write};

use plmkit_contract::{Exit, io_text};

use crate::Fault;

/// Writes `data` to standard output. A reader that has seen enough and left, as `head` does, is no failure.
pub fn print(data: impl AsRef<[u8]>) -> Result<(), Fault> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(data.as_ref())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Fault::new(
            Exit::Io,
            format!("standard output: cannot write: {}", io_text(&error)),
        )),
        Ok(()) => Ok(()),
    }
}
