//! The limit on file sizes (`ulimit -f`).

use std::io;
use std::sync::Arc;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// A write beyond the limit shall fail as one on a full disk does. Unless the signal is handled, it ends the process
/// without a word and with its temporary files in place. Handled and not ignored: a command that we start inherits
/// what is ignored.
pub(crate) fn survive_limit() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}
