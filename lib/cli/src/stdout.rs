//! Standard output, which is for data.

use std::io::{self, ErrorKind, Write};

use plmkit_kit::{Exit, Fault};

/// Writes `data` to standard output. A closed pipe is not an error: returns false once the reader has left.
pub fn print(data: impl AsRef<[u8]>) -> Result<bool, Fault> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(data.as_ref());
    check_printed(written.and_then(|()| stdout.flush()))
}

pub(crate) fn check_printed(written: io::Result<()>) -> Result<bool, Fault> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let what = "standard output: cannot write";
            Err(Fault::of_system(Exit::Io, what, &error))
        }
    }
}
