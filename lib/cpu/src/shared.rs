//! Matrices that several threads write to, each to its own rows or columns.

use std::marker::PhantomData;
use std::ops::Range;

use crate::{Rows, RowsMut};

/// A matrix that several threads share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    first: *mut f32,
    rows: usize,
    width: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: all methods that access values are unsafe and state their conditions.
unsafe impl Send for Shared<'_> {}
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// A matrix of all `values`.
    pub(crate) fn new(values: &'a mut [f32], width: usize) -> Self {
        Self {
            first: values.as_mut_ptr(),
            rows: values.len() / width,
            width,
            lifetime: PhantomData,
        }
    }

    /// Returns rows for reading.
    ///
    /// # Safety
    /// Nothing writes to the values that are read.
    pub(crate) unsafe fn rows(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.end <= self.rows);
        // SAFETY: the matrix has these rows.
        unsafe {
            Rows::from_raw(
                self.first.add(range.start * self.width),
                range.len(),
                self.width,
            )
        }
    }

    /// Returns rows for writing.
    ///
    /// # Safety
    /// Nothing else accesses the values that are written.
    pub(crate) unsafe fn rows_mut(&self, range: Range<usize>) -> RowsMut<'a> {
        assert!(range.end <= self.rows);
        // SAFETY: the matrix has these rows.
        unsafe {
            RowsMut::from_raw(
                self.first.add(range.start * self.width),
                range.len(),
                self.width,
            )
        }
    }

    /// Returns all values.
    ///
    /// # Safety
    /// Nothing writes to them while they are read.
    pub(crate) unsafe fn values(&self) -> &[f32] {
        // SAFETY: `new` was given that many values.
        unsafe { std::slice::from_raw_parts(self.first, self.rows * self.width) }
    }
}
