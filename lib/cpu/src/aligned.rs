//! Memory that begins with a cache line.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Values of a cache line.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

/// Values in memory whose first byte begins a cache line.
#[derive(Clone, Default)]
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

/// There is not so much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot allocate {} bytes", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

impl Aligned {
    /// Zeros.
    pub fn zeros(len: usize) -> Result<Self, OutOfMemory> {
        let mut all = Self::default();
        all.grow(len)?;
        Ok(all)
    }

    /// Makes room for `len` values at least; those that are there stay, new ones are zero.
    pub fn grow(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.len {
            let lines = len.div_ceil(LINE);
            let more = lines - self.lines.len();
            self.lines
                .try_reserve_exact(more)
                .map_err(|_| OutOfMemory {
                    bytes: lines * size_of::<Line>(),
                })?;
            self.lines.resize(lines, Line([0.0; LINE]));
            self.len = len;
        }
        Ok(())
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: lines are arrays of f32 end to end, and there are enough of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({} values)", self.len)
    }
}
