//! The inner product in bfloat16, by AVX512-BF16.

use std::arch::x86_64::*;

/// Adds `A·B` to `sums`: `A` is `(ROWS, pairs, 2)` with rows `a_stride` apart, `B` is `(pairs, VECTORS·16, 2)` with pairs
/// `b_stride` apart. `ROWS` is at most 12, `VECTORS` is 1 or 2.
#[inline(always)]
pub(crate) unsafe fn tile<const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[__m512; VECTORS]; ROWS],
    pairs: usize,
    a: *const u16,
    a_stride: usize,
    b: *const u16,
    b_stride: usize,
) {
    // Written out row by row, as for f32.
    macro_rules! each_row {
        ($($row:literal)*) => {
            unsafe {
                let mut all = *sums;
                for pair in 0..pairs {
                    let b = b.add(pair * b_stride);
                    let left: __m512bh = std::mem::transmute(_mm512_loadu_si512(b.cast()));
                    let right = b.add((VECTORS - 1) * 32);
                    let right: __m512bh = std::mem::transmute(_mm512_loadu_si512(right.cast()));
                    $(if $row < ROWS {
                        let value = a.add($row * a_stride + 2 * pair).cast::<[u16; 2]>();
                        let value = _mm512_set1_epi32(std::mem::transmute::<[u16; 2], i32>(*value));
                        let value: __m512bh = std::mem::transmute(value);
                        all[$row][0] = _mm512_dpbf16_ps(all[$row][0], value, left);
                        if VECTORS == 2 {
                            all[$row][1] = _mm512_dpbf16_ps(all[$row][1], value, right);
                        }
                    })*
                }
                *sums = all;
            }
        };
    }
    each_row!(0 1 2 3 4 5 6 7 8 9 10 11);
}
