//! Products in f32. Inputs are not copied; weights of bfloat16 are widened panel by panel.

use std::ops::Range;

use super::VECTORS;
use super::product::{Multiplier, Sums};
use crate::Rows;
use crate::simd::Simd;
use crate::tile::{LINE, tile};

/// Rows of f32.
pub(super) struct Inputs {
    first: *const f32,
    width: usize,
}

impl Inputs {
    /// No rows, until some are loaded.
    const NONE: Self = Self {
        first: std::ptr::null(),
        width: 0,
    };

    #[inline(always)]
    fn load(&mut self, x: Rows<'_>, range: Range<usize>) {
        self.first = x.at(range.start);
        self.width = x.width();
    }

    /// Multiplies `rows` ≤ `ROWS` rows from `row` by a panel, `(width, columns)`.
    #[inline(always)]
    unsafe fn multiply<S: Simd, const ROWS: usize>(
        &self,
        (row, rows): (usize, usize),
        panel: *const f32,
        ahead: *const f32,
        sums: &mut Sums<S, ROWS>,
    ) {
        let (columns, width) = (VECTORS * S::LANES, self.width);
        unsafe {
            let a = self.first.add(row * width);
            *sums = [[S::splat(0.0); VECTORS]; ROWS];
            if rows == ROWS {
                tile::<S, ROWS, VECTORS>(sums, width, a, width, panel, columns, ahead);
            } else {
                // One by one, in the same order.
                for (i, sums) in sums.iter_mut().enumerate().take(rows) {
                    let mut one = [*sums];
                    let a = a.add(i * width);
                    tile::<S, 1, VECTORS>(&mut one, width, a, 0, panel, columns, ahead);
                    *sums = one[0];
                }
            }
        }
    }
}

/// Returns what a tile prefetches, a line for each input: its share of the next panel; later tiles, what is there already.
#[inline(always)]
fn share(
    panel: *const f32,
    next: *const f32,
    tile: usize,
    shares: usize,
    inputs: usize,
) -> *const f32 {
    if tile < shares.max(1) {
        next.wrapping_add(tile * LINE * inputs)
    } else {
        panel
    }
}

/// Multiplies f32 panels by f32 rows.
pub(super) struct InF32<'a> {
    panels: &'a [f32],
    inputs: Inputs,
}

impl<'a> InF32<'a> {
    pub(super) fn new(panels: &'a [f32]) -> Self {
        Self {
            panels,
            inputs: Inputs::NONE,
        }
    }
}

impl<S: Simd, const ROWS: usize> Multiplier<S, ROWS> for InF32<'_> {
    const BYTES: usize = size_of::<f32>();

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        self.inputs.load(x, range);
    }

    #[inline(always)]
    unsafe fn tile(
        &self,
        row: usize,
        rows: usize,
        panel: usize,
        _inputs: Range<usize>,
        sums: &mut Sums<S, ROWS>,
    ) {
        let (columns, width) = (VECTORS * S::LANES, self.inputs.width);
        unsafe {
            let panel = self.panels.as_ptr().add(panel * columns * width);
            let next = panel.wrapping_add(columns * width);
            let ahead = share(panel, next, row / ROWS, columns / LINE, width);
            self.inputs
                .multiply::<S, ROWS>((row, rows), panel, ahead, sums);
        }
    }
}

/// Multiplies bfloat16 panels, widened to f32, by f32 rows.
pub(super) struct Widened<'a> {
    panels: &'a [u16],
    /// Inputs of a panel, padded.
    depth: usize,
    /// `(depth, columns)`: the loaded panel.
    room: &'a mut [f32],
    inputs: Inputs,
}

impl<'a> Widened<'a> {
    pub(super) fn new(panels: &'a [u16], depth: usize, room: &'a mut [f32]) -> Self {
        Self {
            panels,
            depth,
            room,
            inputs: Inputs::NONE,
        }
    }
}

impl<S: Simd, const ROWS: usize> Multiplier<S, ROWS> for Widened<'_> {
    const BYTES: usize = size_of::<f32>();

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        self.inputs.load(x, range);
    }

    #[inline(always)]
    unsafe fn load_panel(&mut self, panel: usize) {
        let columns = VECTORS * S::LANES;
        let panel = self.panels[panel * columns * self.depth..].as_ptr();
        for at in (0..columns * self.depth / 2).step_by(S::LANES) {
            // Of so many columns, the values of two inputs.
            let (row, column) = (at / columns * 2, at % columns);
            unsafe {
                let [even, odd] = S::widen(panel.add(2 * at));
                let to = self.room.as_mut_ptr().add(row * columns + column);
                S::store(to, even);
                S::store(to.add(columns), odd);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(
        &self,
        row: usize,
        rows: usize,
        panel: usize,
        _inputs: Range<usize>,
        sums: &mut Sums<S, ROWS>,
    ) {
        let (columns, loaded) = (VECTORS * S::LANES, self.room.as_ptr());
        let next = (panel + 1) * columns * self.depth;
        let next = self.panels.as_ptr().wrapping_add(next).cast();
        let shares = columns / 2 / LINE;
        let ahead = share(loaded, next, row / ROWS, shares, self.inputs.width);
        unsafe {
            self.inputs
                .multiply::<S, ROWS>((row, rows), loaded, ahead, sums);
        }
    }
}
