//! The inner product of 8-bit integers.

use crate::dot::Dot;

/// Returns `first + A·B`: `A` is `(ROWS, steps, TOGETHER)` inputs with rows `stride` bytes apart, `B` is
/// `(steps, VECTORS·LANES, TOGETHER)`, `first` is `(VECTORS·LANES)`. `ROWS` is at most 12, `VECTORS` is 2.
#[inline(always)]
pub(crate) unsafe fn tile<D: Dot, const ROWS: usize, const VECTORS: usize>(
    first: *const i32,
    steps: usize,
    a: *const u8,
    stride: usize,
    b: *const D::Weight,
) -> [[D::Sums; VECTORS]; ROWS] {
    use crate::simd::Simd;
    let lanes = D::F::LANES;
    // Written out row by row, as for f32.
    macro_rules! each_row {
        ($($row:literal)*) => {
            unsafe {
                let mut all = [[D::load(first); VECTORS]; ROWS];
                for sums in &mut all {
                    sums[VECTORS - 1] = D::load(first.add((VECTORS - 1) * lanes));
                }
                for step in 0..steps {
                    let b = b.add(step * VECTORS * lanes * D::TOGETHER);
                    let left = D::weights(b);
                    let right = D::weights(b.add((VECTORS - 1) * lanes * D::TOGETHER));
                    let a = a.add(step * D::TOGETHER * D::BYTES);
                    $(if $row < ROWS {
                        let inputs = D::inputs(a.add($row * stride));
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
