//! What a device can do, by its compute capability.

use std::fmt;

/// The architecture of a device, which is its compute capability: 9.0 is `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Architecture {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl Architecture {
    /// Returns the number that the compiler has for it: 90.
    pub(crate) fn number(self) -> u32 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.major, self.minor)
    }
}
