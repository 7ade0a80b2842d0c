//! Products in f32. Inputs are not copied.

use std::ops::Range;

use super::VECTORS;
use super::product::{Multiplier, Sums};
use crate::Rows;
use crate::simd::Simd;
use crate::tile::tile;

/// Multiplies f32 panels by f32 rows.
pub(super) struct InF32<'a> {
    panels: &'a [f32],
    first: *const f32,
    inputs: usize,
}

impl<'a> InF32<'a> {
    pub(super) fn new(panels: &'a [f32]) -> Self {
        Self {
            panels,
            first: std::ptr::null(),
            inputs: 0,
        }
    }
}

impl<S: Simd, const ROWS: usize> Multiplier<S, ROWS> for InF32<'_> {
    const BYTES: usize = size_of::<f32>();

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        self.first = x.at(range.start);
        self.inputs = x.width();
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
        let columns = VECTORS * S::LANES;
        unsafe {
            let a = self.first.add(row * self.inputs);
            let b = self.panels.as_ptr().add(panel * columns * self.inputs);
            *sums = [[S::splat(0.0); VECTORS]; ROWS];
            if rows == ROWS {
                tile::<S, ROWS, VECTORS>(sums, self.inputs, a, self.inputs, b, columns);
            } else {
                // One by one, in the same order.
                for (i, sums) in sums.iter_mut().enumerate().take(rows) {
                    let mut one = [*sums];
                    let a = a.add(i * self.inputs);
                    tile::<S, 1, VECTORS>(&mut one, self.inputs, a, 0, b, columns);
                    *sums = one[0];
                }
            }
        }
    }
}
