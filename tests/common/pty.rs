//! Pseudo-terminals.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Creates a terminal; returns its controller, and the device for a program.
pub(crate) fn pair(rows: u16, columns: u16) -> (OwnedFd, OwnedFd) {
    // Programs must not inherit the controller: the terminal hangs up when its last copy is closed.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let device = open(name, flags, Mode::empty()).unwrap();
    tcsetwinsize(&controller, size(rows, columns)).unwrap();
    (controller, device)
}

pub(crate) fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
