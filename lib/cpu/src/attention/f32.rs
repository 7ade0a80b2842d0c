//! Scores and mixes in f32.

use crate::simd::Simd;
use crate::tile::part;
use crate::{Rows, exp};

/// A word is a value.
pub(super) struct Products;

impl<S: Simd> super::Products<S> for Products {
    const VALUES: usize = 1;
    const KEYS: usize = 128;
    const EXP2: &[f32] = exp::FINE;

    #[inline(always)]
    unsafe fn convert(to: *mut f32, from: *const f32, count: usize, factor: f32) {
        unsafe {
            for k in (0..count).step_by(S::LANES) {
                let values = S::load_some(from.add(k), count - k);
                S::store(to.add(k), S::mul(values, S::splat(factor)));
            }
        }
    }

    #[inline(always)]
    unsafe fn stack(to: *mut f32, rows: Rows<'_>, channel: usize, dim: usize, wide: usize) {
        for row in 0..rows.rows() {
            unsafe {
                let value = rows.at(row).add(channel);
                <Self as super::Products<S>>::convert(to.add(row * wide), value, dim, 1.0);
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh(row: *mut f32, key: usize, weights: S::V) {
        unsafe { S::store(row.add(key), weights) }
    }

    #[inline(always)]
    unsafe fn tile<const ROWS: usize, const VECTORS: usize>(
        sums: &mut [[S::V; VECTORS]; ROWS],
        words: usize,
        a: *const f32,
        a_stride: usize,
        b: *const f32,
        b_stride: usize,
    ) {
        unsafe { part::<S, ROWS, VECTORS>(sums, words, a, a_stride, b, b_stride, None) }
    }
}
