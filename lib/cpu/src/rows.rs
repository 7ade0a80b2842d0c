//! Rows of a matrix in memory.

use std::marker::PhantomData;

/// `(rows, width)` values, rows `stride` values apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    first: *const f32,
    count: usize,
    width: usize,
    stride: usize,
    lifetime: PhantomData<&'a [f32]>,
}

/// The same, to be written.
#[derive(Debug)]
pub struct RowsMut<'a> {
    first: *mut f32,
    count: usize,
    width: usize,
    stride: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: they are slices of f32, borrowed, with gaps that are not touched.
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
        Self {
            first: values.as_ptr(),
            count: rows_of(values.len(), width),
            width,
            stride: width,
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// There are so many values, and nobody writes them.
    pub(crate) unsafe fn from_raw(first: *const f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            stride: width,
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

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The first value of a row.
    pub(crate) fn at(&self, row: usize) -> *const f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.stride) }
    }
}

impl<'a> RowsMut<'a> {
    /// All of `values`, row by row.
    pub fn new(values: &'a mut [f32], width: usize) -> Self {
        Self {
            first: values.as_mut_ptr(),
            count: rows_of(values.len(), width),
            width,
            stride: width,
            lifetime: PhantomData,
        }
    }

    /// # Safety
    /// There are so many values, and nobody else reads or writes what will be written.
    pub(crate) unsafe fn from_raw(first: *mut f32, rows: usize, width: usize) -> Self {
        Self {
            first,
            count: rows,
            width,
            stride: width,
            lifetime: PhantomData,
        }
    }

    /// The same rows, to be read.
    pub fn as_rows(&self) -> Rows<'_> {
        Rows {
            first: self.first,
            count: self.count,
            width: self.width,
            stride: self.stride,
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
    pub(crate) fn at(&mut self, row: usize) -> *mut f32 {
        debug_assert!(row < self.count);
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.stride) }
    }
}
