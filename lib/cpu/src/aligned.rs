//! Page-aligned memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use memmap2::MmapMut;

/// Page-aligned values. The system provides a page when a thread first writes to it.
pub(crate) struct Aligned<T = f32> {
    /// `None` if there are no values.
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

/// The system refuses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {bytes} bytes")]
pub struct OutOfMemory {
    /// The bytes that were asked for.
    pub bytes: usize,
}

impl<T: Pod> Aligned<T> {
    /// Returns `len` zeros.
    pub(crate) fn zeros(len: usize) -> Result<Self, OutOfMemory> {
        let mut all = Self::default();
        all.grow(len)?;
        Ok(all)
    }

    /// Grows to at least `len` values. Keeps the existing values; new values are zero.
    pub(crate) fn grow(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.len {
            let bytes = len.saturating_mul(size_of::<T>());
            let mut grown = MmapMut::map_anon(bytes).map_err(|_| OutOfMemory { bytes })?;
            // Without huge pages: if the system has to clear or assemble them first, loading takes three times as long.
            if let Some(bytes) = &self.bytes {
                grown[..bytes.len()].copy_from_slice(bytes);
            }
            (self.bytes, self.len) = (Some(grown), len);
        }
        Ok(())
    }
}

impl<T: Pod> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.bytes.as_deref().map_or(&[], bytemuck::cast_slice)
    }
}

impl<T: Pod> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes = self.bytes.as_deref_mut();
        bytes.map_or(&mut [], bytemuck::cast_slice_mut)
    }
}

impl<T> fmt::Debug for Aligned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Aligned({} values)", self.len)
    }
}
