//! Matrices that several threads work on, each on rows or columns of its own.

use std::marker::PhantomData;
use std::ops::Range;

use crate::{Rows, RowsMut};

/// A matrix in memory that others hold, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    first: *mut f32,
    rows: usize,
    width: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: what it gives out is unsafe to ask for, and says what has to hold.
unsafe impl Send for Shared<'_> {}
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// All of `values`, row by row.
    pub(crate) fn new(values: &'a mut [f32], width: usize) -> Self {
        Self {
            first: values.as_mut_ptr(),
            rows: values.len() / width,
            width,
            lifetime: PhantomData,
        }
    }

    /// Rows to read.
    ///
    /// # Safety
    /// Nobody writes what is read of them.
    pub(crate) unsafe fn rows(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.end <= self.rows);
        // SAFETY: the rows are some of the matrix.
        unsafe {
            Rows::from_raw(
                self.first.add(range.start * self.width),
                range.len(),
                self.width,
            )
        }
    }

    /// Rows to write.
    ///
    /// # Safety
    /// Nobody else reads or writes what is written of them.
    pub(crate) unsafe fn rows_mut(&self, range: Range<usize>) -> RowsMut<'a> {
        assert!(range.end <= self.rows);
        // SAFETY: the rows are some of the matrix.
        unsafe {
            RowsMut::from_raw(
                self.first.add(range.start * self.width),
                range.len(),
                self.width,
            )
        }
    }

    /// All values.
    ///
    /// # Safety
    /// Nobody writes any as long as they are read.
    pub(crate) unsafe fn values(&self) -> &[f32] {
        // SAFETY: it was made of as many.
        unsafe { std::slice::from_raw_parts(self.first, self.rows * self.width) }
    }
}
