//! Matrices in memory.

use std::marker::PhantomData;
use std::ops::Range;

/// A `(rows, width)` matrix, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    first: *const f32,
    count: usize,
    width: usize,
    lifetime: PhantomData<&'a [f32]>,
}

/// A writable `(rows, width)` matrix, row by row.
#[derive(Debug)]
pub struct RowsMut<'a> {
    first: *mut f32,
    count: usize,
    width: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: they are borrowed slices of f32.
unsafe impl Send for Rows<'_> {}
unsafe impl Sync for Rows<'_> {}
unsafe impl Send for RowsMut<'_> {}
// SAFETY: methods that access values through a shared reference read them, or are unsafe and state their conditions.
unsafe impl Sync for RowsMut<'_> {}

/// Returns the number of rows in `len` values.
fn rows_of(len: usize, width: usize) -> usize {
    assert!(width > 0 && len.is_multiple_of(width), "rows are whole");
    len / width
}

impl<'a> Rows<'a> {
    /// A matrix of all `values`.
    pub fn new(values: &'a [f32], width: usize) -> Self {
        // SAFETY: the values are borrowed, and the number of rows is theirs.
        unsafe { Self::from_raw(values.as_ptr(), rows_of(values.len(), width), width) }
    }

    /// # Safety
    /// All values exist, and nothing writes to them.
    unsafe fn from_raw(first: *const f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            lifetime: PhantomData,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.count
    }

    /// Returns the values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns all values.
    pub fn values(&self) -> &'a [f32] {
        // SAFETY: the values are borrowed, and nothing writes to them.
        unsafe { std::slice::from_raw_parts(self.first, self.count * self.width) }
    }

    /// Returns the address of the first row.
    pub(crate) fn first(&self) -> *const f32 {
        self.first
    }

    /// Returns the address of a row.
    pub(crate) fn at(&self, row: usize) -> *const f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}

impl<'a> RowsMut<'a> {
    /// A matrix of all `values`.
    pub fn new(values: &'a mut [f32], width: usize) -> Self {
        // SAFETY: the values are borrowed exclusively, and the number of rows is theirs.
        unsafe { Self::from_raw(values.as_mut_ptr(), rows_of(values.len(), width), width) }
    }

    /// # Safety
    /// All values exist, and nothing else accesses the values that will be written.
    unsafe fn from_raw(first: *mut f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            lifetime: PhantomData,
        }
    }

    /// Returns the same rows for reading.
    pub fn as_rows(&self) -> Rows<'_> {
        // SAFETY: the result borrows `self`.
        unsafe { Rows::from_raw(self.first, self.count, self.width) }
    }

    /// Returns some of the rows for reading, while other threads use other values.
    ///
    /// # Safety
    /// Nothing writes to the values that are read.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.end <= self.count);
        // SAFETY: the matrix has these rows.
        unsafe {
            let first = self.first.add(range.start * self.width);
            Rows::from_raw(first, range.len(), self.width)
        }
    }

    /// Returns some of the rows for writing, while other threads use other values.
    ///
    /// # Safety
    /// Nothing else accesses the values that are written.
    pub(crate) unsafe fn part_mut(&self, range: Range<usize>) -> RowsMut<'a> {
        assert!(range.end <= self.count);
        // SAFETY: the matrix has these rows.
        unsafe {
            let first = self.first.add(range.start * self.width);
            Self::from_raw(first, range.len(), self.width)
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.count
    }

    /// Returns the values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the address of the first row.
    pub(crate) fn first(&mut self) -> *mut f32 {
        self.first
    }

    /// Returns the address of a row.
    pub(crate) fn at(&mut self, row: usize) -> *mut f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}
