//! Rows of a matrix in memory.

use std::marker::PhantomData;

/// `(rows, width)` values, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    first: *const f32,
    count: usize,
    width: usize,
    lifetime: PhantomData<&'a [f32]>,
}

/// The same, to be written.
#[derive(Debug)]
pub struct RowsMut<'a> {
    first: *mut f32,
    count: usize,
    width: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: they are slices of f32, borrowed.
unsafe impl Send for Rows<'_> {}
unsafe impl Sync for Rows<'_> {}
unsafe impl Send for RowsMut<'_> {}

/// Rows of `width` that `len` values hold.
fn rows_of(len: usize, width: usize) -> usize {
    assert!(width > 0 && len.is_multiple_of(width), "rows are whole");
    len / width
}

impl<'a> Rows<'a> {
    /// All of `values`, row by row.
    pub fn new(values: &'a [f32], width: usize) -> Self {
        // SAFETY: they are borrowed, and as many.
        unsafe { Self::from_raw(values.as_ptr(), rows_of(values.len(), width), width) }
    }

    /// # Safety
    /// There are so many values, and nobody writes them.
    pub(crate) unsafe fn from_raw(first: *const f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            lifetime: PhantomData,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.count
    }

    /// Values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The first value of a row.
    pub(crate) fn at(&self, row: usize) -> *const f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}

impl<'a> RowsMut<'a> {
    /// All of `values`, row by row.
    pub fn new(values: &'a mut [f32], width: usize) -> Self {
        // SAFETY: they are borrowed for this alone, and as many.
        unsafe { Self::from_raw(values.as_mut_ptr(), rows_of(values.len(), width), width) }
    }

    /// # Safety
    /// There are so many values, and nobody else reads or writes what will be written.
    pub(crate) unsafe fn from_raw(first: *mut f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            lifetime: PhantomData,
        }
    }

    /// The same rows, to be read.
    pub fn as_rows(&self) -> Rows<'_> {
        // SAFETY: they are borrowed as long as these.
        unsafe { Rows::from_raw(self.first, self.count, self.width) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.count
    }

    /// Values of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The first value of a row.
    pub(crate) fn at(&mut self, row: usize) -> *mut f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}
