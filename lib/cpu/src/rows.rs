//! Matrices in memory: f32 row by row, or bfloat16 in the order that [products of tiles](crate::amx) read.

use std::marker::PhantomData;
use std::ops::Range;

use crate::amx::SIDE;
use crate::simd::prefetch_far;

/// A `(rows, width)` matrix.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    first: *const f32,
    count: usize,
    width: usize,
    tiles: Option<Tiles>,
    lifetime: PhantomData<&'a [f32]>,
}

/// A writable `(rows, width)` matrix.
#[derive(Debug)]
pub struct RowsMut<'a> {
    first: *mut f32,
    count: usize,
    width: usize,
    tiles: Option<Tiles>,
    lifetime: PhantomData<&'a mut [f32]>,
}

/// Where tiles of 32 rows and columns are, whose values are row by row.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    /// The rows in memory before the first one.
    before: usize,
    /// From a tile to the next one of its columns, in values.
    down: usize,
    /// From a tile to the next one of its rows.
    right: usize,
}

impl Tiles {
    /// Returns where a value is in memory.
    #[inline(always)]
    fn place(self, row: usize, column: usize) -> usize {
        let row = self.before + row;
        row / SIDE * self.down + column / SIDE * self.right + row % SIDE * SIDE + column % SIDE
    }

    /// Returns the same after some rows.
    fn after(self, rows: usize) -> Self {
        Self {
            before: self.before + rows,
            ..self
        }
    }
}

/// Where values of a row are.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Row by row, so many values apart.
    Values(*mut f32, usize),
    /// In a tile, 32 values apart.
    Halves(*mut u16),
}

impl Target {
    /// Prefetches 32 values of some rows, to which something is added.
    #[inline(always)]
    pub(crate) fn prefetch(self, rows: usize) {
        if let Self::Values(first, width) = self {
            for row in 0..rows {
                for at in [0, 16] {
                    prefetch_far(first.wrapping_add(row * width + at));
                }
            }
        }
    }
}

/// Returns the values of memory for rows in either form.
pub(crate) fn room(rows: usize, width: usize) -> usize {
    rows.next_multiple_of(SIDE) * width.next_multiple_of(SIDE)
}

/// Returns the values of memory for rows in [strips](RowsMut::strips). A tile may begin with the last row.
pub(crate) fn strips_room(rows: usize, width: usize) -> usize {
    (rows * width + SIDE * SIDE).div_ceil(2)
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
        unsafe { Self::from_raw(values.as_ptr(), rows_of(values.len(), width), width, None) }
    }

    /// # Safety
    /// All values exist, and nothing writes to them.
    unsafe fn from_raw(first: *const f32, rows: usize, width: usize, tiles: Option<Tiles>) -> Self {
        Self {
            first,
            count: rows,
            width,
            tiles,
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

    /// Whether the matrix is in tiles.
    pub(crate) fn is_in_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// Returns the address of a row, and of the 31 after it, of a matrix in tiles.
    ///
    /// # Panics
    /// If it is not the first of a tile.
    pub(crate) fn tiles_at(&self, row: usize) -> Option<*const u16> {
        let tiles = self.tiles?.after(row);
        assert!(tiles.before.is_multiple_of(SIDE), "tiles are whole");
        assert!(tiles.right == SIDE * SIDE, "a row of tiles is in one piece");
        Some(self.first.cast::<u16>().wrapping_add(tiles.place(0, 0)))
    }

    /// Returns the address of a column of a matrix in strips, whose rows are 32 values apart, and the values from a column to the 32nd
    /// after it.
    pub(crate) fn strip(&self, column: usize) -> (*const u16, usize) {
        let tiles = self.tiles.expect("the matrix is in strips");
        assert!(
            tiles.down == SIDE * SIDE,
            "a column of tiles is in one piece"
        );
        let first = self.first.cast::<u16>();
        (first.wrapping_add(tiles.place(0, column)), tiles.right)
    }

    /// Returns the address of the first row.
    pub(crate) fn first(&self) -> *const f32 {
        self.first
    }

    /// Returns the address of a row.
    pub(crate) fn at(&self, row: usize) -> *const f32 {
        debug_assert!(row < self.count && self.tiles.is_none());
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}

impl<'a> RowsMut<'a> {
    /// A matrix of all `values`.
    pub fn new(values: &'a mut [f32], width: usize) -> Self {
        // SAFETY: the values are borrowed exclusively, and the number of rows is theirs.
        unsafe {
            Self::from_raw(
                values.as_mut_ptr(),
                rows_of(values.len(), width),
                width,
                None,
            )
        }
    }

    /// A matrix in tiles in `memory`, which has [`room`] for it.
    pub(crate) fn tiles(memory: &'a mut [f32], rows: usize, width: usize) -> Self {
        let memory = &mut memory[..room(rows, width) / 2];
        if !width.is_multiple_of(SIDE) {
            // Whatever was there would be multiplied.
            memory.fill(0.0);
        }
        let tiles = Tiles {
            before: 0,
            down: width.next_multiple_of(SIDE) * SIDE,
            right: SIDE * SIDE,
        };
        // SAFETY: the values are borrowed exclusively, and there are enough.
        unsafe { Self::from_raw(memory.as_mut_ptr(), rows, width, Some(tiles)) }
    }

    /// A matrix in tiles in `memory`, which has [room](strips_room) for it: `(width/32, rows, 32)`, so that a tile may begin with any row.
    pub(crate) fn strips(memory: &'a mut [f32], rows: usize, width: usize) -> Self {
        assert!(width.is_multiple_of(SIDE), "tiles are whole");
        let memory = &mut memory[..strips_room(rows, width)];
        let tiles = Tiles {
            before: 0,
            down: SIDE * SIDE,
            right: rows * SIDE,
        };
        // SAFETY: the values are borrowed exclusively, and there are enough.
        unsafe { Self::from_raw(memory.as_mut_ptr(), rows, width, Some(tiles)) }
    }

    /// Whether the matrix is in tiles.
    pub(crate) fn is_in_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// Returns the address of a value of a matrix in tiles. The following ones of the row are beside it, to the next multiple of 32.
    #[inline(always)]
    pub(crate) fn half(&self, row: usize, column: usize) -> *mut u16 {
        debug_assert!(row < self.count && column < self.width.next_multiple_of(SIDE));
        let tiles = self.tiles.expect("the matrix is in tiles");
        self.first
            .cast::<u16>()
            .wrapping_add(tiles.place(row, column))
    }

    /// Returns where values of a row from a column on are.
    #[inline(always)]
    pub(crate) fn target(&mut self, row: usize, column: usize) -> Target {
        if self.is_in_tiles() {
            Target::Halves(self.half(row, column))
        } else {
            Target::Values(self.at(row).wrapping_add(column), self.width)
        }
    }

    /// # Safety
    /// All values exist, and nothing else accesses the values that will be written.
    unsafe fn from_raw(first: *mut f32, rows: usize, width: usize, tiles: Option<Tiles>) -> Self {
        Self {
            first,
            count: rows,
            width,
            tiles,
            lifetime: PhantomData,
        }
    }

    /// Returns the same rows for reading.
    pub fn as_rows(&self) -> Rows<'_> {
        // SAFETY: the result borrows `self`.
        unsafe { Rows::from_raw(self.first, self.count, self.width, self.tiles) }
    }

    /// Returns some of the rows for reading, while other threads use other values.
    ///
    /// # Safety
    /// Nothing writes to the values that are read.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> Rows<'a> {
        assert!(range.end <= self.count);
        // SAFETY: the matrix has these rows.
        unsafe {
            let (first, tiles) = self.skip(range.start);
            Rows::from_raw(first, range.len(), self.width, tiles)
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
            let (first, tiles) = self.skip(range.start);
            Self::from_raw(first, range.len(), self.width, tiles)
        }
    }

    /// Returns the place of a row of the matrix.
    unsafe fn skip(&self, row: usize) -> (*mut f32, Option<Tiles>) {
        match self.tiles {
            Some(tiles) => (self.first, Some(tiles.after(row))),
            None => (unsafe { self.first.add(row * self.width) }, None),
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
        debug_assert!(row < self.count && self.tiles.is_none());
        // SAFETY: the row is one of the matrix.
        unsafe { self.first.add(row * self.width) }
    }
}
