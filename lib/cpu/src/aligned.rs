//! Memory that begins with a cache line.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Bytes of a cache line.
const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// Numbers: any bits are a value, and those of zero are all 0.
pub trait Number: Copy + number::Sealed {}

mod number {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u16 {}
    impl Sealed for u8 {}
    impl Sealed for i8 {}
    impl Sealed for i32 {}
}

impl Number for f32 {}
impl Number for u16 {}
impl Number for u8 {}
impl Number for i8 {}
impl Number for i32 {}

/// Values in memory whose first byte begins a cache line.
#[derive(Clone)]
pub struct Aligned<T = f32> {
    lines: Vec<Line>,
    len: usize,
    values: PhantomData<T>,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Self {
            lines: Vec::new(),
            len: 0,
            values: PhantomData,
        }
    }
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

impl<T: Number> Aligned<T> {
    /// Zeros.
    pub fn zeros(len: usize) -> Result<Self, OutOfMemory> {
        let mut all = Self::default();
        all.grow(len)?;
        Ok(all)
    }

    /// Makes room for `len` values at least; those that are there stay, new ones are zero.
    pub fn grow(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.len {
            let lines = (len * size_of::<T>()).div_ceil(LINE);
            let more = lines - self.lines.len();
            self.lines
                .try_reserve_exact(more)
                .map_err(|_| OutOfMemory {
                    bytes: lines * size_of::<Line>(),
                })?;
            self.lines.resize(lines, Line([0; LINE]));
            self.len = len;
        }
        Ok(())
    }
}

impl<T: Number> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: lines are bytes end to end, enough of them, aligned for any number, and any bytes are one.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl<T: Number> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}

impl<T> fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({} values)", self.len)
    }
}
