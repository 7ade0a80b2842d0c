//! Memory that begins with a page, and so with a cache line.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

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

/// Values in memory whose first byte begins a page. Pages are taken from the system when they are first written to, by whichever
/// thread writes.
pub struct Aligned<T = f32> {
    /// `None` where there are no values.
    bytes: Option<MmapMut>,
    len: usize,
    values: PhantomData<T>,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Self {
            bytes: None,
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
            let bytes = len.saturating_mul(size_of::<T>());
            let mut grown = MmapMut::map_anon(bytes).map_err(|_| OutOfMemory { bytes })?;
            // Huge pages are not asked for: where they have to be cleared or put together first, loading took three times as long.
            if let Some(bytes) = &self.bytes {
                grown[..bytes.len()].copy_from_slice(bytes);
            }
            (self.bytes, self.len) = (Some(grown), len);
        }
        Ok(())
    }
}

impl<T: Number> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Some(bytes) = &self.bytes else {
            return &[];
        };
        // SAFETY: there are bytes for so many, a page is aligned for any number, and any bytes are one.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), self.len) }
    }
}

impl<T: Number> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let Some(bytes) = &mut self.bytes else {
            return &mut [];
        };
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), self.len) }
    }
}

impl<T> fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({} values)", self.len)
    }
}
