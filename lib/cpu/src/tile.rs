//! The inner product of all matrix products: a few rows by a few vectors of columns.

pub(crate) mod dot;

use crate::simd::{Simd, prefetch_far};

/// The products of a partial sum. Adding 1,280 products one after the other has four times the rounding error.
pub(crate) const DEPTH: usize = 64;

/// Adds `A·B` to `sums`: `A` is `(ROWS, depth)` with rows `a_stride` apart, `B` is `(depth, VECTORS·LANES)` with rows
/// `b_stride` apart. The order of additions depends only on `depth`. `ROWS` is at most 12, `VECTORS` is 1 or 2. A cache line for each
/// row of `B` is prefetched from `ahead`.
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[S::V; VECTORS]; ROWS],
    depth: usize,
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    ahead: *const f32,
) {
    for first in (0..depth).step_by(DEPTH) {
        unsafe {
            let mut all = [[S::splat(0.0); VECTORS]; ROWS];
            let (count, b) = (DEPTH.min(depth - first), b.add(first * b_stride));
            let ahead = Some(ahead.wrapping_add(first * LINE));
            part::<S, ROWS, VECTORS>(&mut all, count, a.add(first), a_stride, b, b_stride, ahead);
            for (sums, all) in sums.iter_mut().zip(&all) {
                for (sum, &part) in sums.iter_mut().zip(all) {
                    let sum: *mut S::V = sum;
                    // With AVX-512, the compiler would keep sums in registers beside the parts, run out of them, and spill.
                    if S::LANES == 16 {
                        sum.write_volatile(S::add(sum.read_volatile(), part));
                    } else {
                        *sum = S::add(*sum, part);
                    }
                }
            }
        }
    }
}

/// The values of a cache line.
pub(crate) const LINE: usize = 16;

/// [`tile`] without partial sums: adds each product to its sum, one after the other.
#[inline(always)]
pub(crate) unsafe fn part<S: Simd, const ROWS: usize, const VECTORS: usize>(
    sums: &mut [[S::V; VECTORS]; ROWS],
    depth: usize,
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    b_stride: usize,
    ahead: Option<*const f32>,
) {
    // Written out row by row: the compiler unrolls a loop too late to keep the sums in registers.
    macro_rules! each_row {
        ($($row:literal)*) => {
            unsafe {
                let mut all = *sums;
                for k in 0..depth {
                    if let Some(ahead) = ahead {
                        prefetch_far(ahead.wrapping_add(k * LINE));
                    }
                    let b = b.add(k * b_stride);
                    let (left, right) = (S::load(b), S::load(b.add((VECTORS - 1) * S::LANES)));
                    $(if $row < ROWS {
                        let value = S::splat(*a.add($row * a_stride + k));
                        all[$row][0] = S::mul_add(value, left, all[$row][0]);
                        if VECTORS == 2 {
                            all[$row][1] = S::mul_add(value, right, all[$row][1]);
                        }
                    })*
                }
                *sums = all;
            }
        };
    }
    each_row!(0 1 2 3 4 5 6 7 8 9 10 11);
}
