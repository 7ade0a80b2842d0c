//! The inner product of 8-bit integers or bfloat16.

use crate::dot::Dot;
use crate::simd::Simd;

/// Returns `sums + A·B`: `A` is `(UNITS, steps, D::ROWS, TOGETHER)` inputs with rows of `a_stride` bytes, `B` is
/// `(steps, VECTORS·LANES, TOGETHER)` with steps `b_stride` weights apart. `UNITS` is at most 12, `VECTORS` is 1 or 2.
#[inline(always)]
pub(crate) unsafe fn tile<D: Dot, const UNITS: usize, const VECTORS: usize>(
    sums: [[D::Sums; VECTORS]; UNITS],
    steps: usize,
    a: *const u8,
    a_stride: usize,
    b: *const D::Weight,
    b_stride: usize,
) -> [[D::Sums; VECTORS]; UNITS] {
    // Written out row by row, as for f32.
    macro_rules! each_row {
        ($($row:literal)*) => {
            unsafe {
                let mut all = sums;
                for step in 0..steps {
                    let b = b.add(step * b_stride);
                    let left = D::weights(b);
                    let right = D::weights(b.add((VECTORS - 1) * D::F::LANES * D::TOGETHER));
                    let a = a.add(step * D::ROWS * D::TOGETHER * D::BYTES);
                    $(if $row < UNITS {
                        let inputs = D::inputs(a.add($row * D::ROWS * a_stride));
                        all[$row][0] = D::add(all[$row][0], inputs, left);
                        if VECTORS == 2 {
                            all[$row][1] = D::add(all[$row][1], inputs, right);
                        }
                    })*
                }
                all
            }
        };
    }
    each_row!(0 1 2 3 4 5 6 7 8 9 10 11)
}
