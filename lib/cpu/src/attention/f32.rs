//! Scores and mixes in f32.

use super::{Head, KEYS, add_to, padded};
use crate::Rows;
use crate::simd::Simd;
use crate::tile::tile;

/// Panels of keys are `(dim, 2·LANES)`, rows of values `(wide)`.
pub(super) struct Products;

impl<S: Simd, const ROWS: usize> super::Products<S, ROWS> for Products {
    #[inline(always)]
    unsafe fn pack(qkv: Rows<'_>, head: Head, keys: *mut f32, values: *mut f32) {
        let (length, dim, columns) = (qkv.rows(), head.dim, 2 * S::LANES);
        let (hidden, wide) = (qkv.width() / 3, padded::<S>(head));
        unsafe {
            for row in 0..length {
                let key = qkv.at(row).add(hidden + head.number * dim);
                let panel = keys.add(row / columns * columns * dim + row % columns);
                for k in 0..dim {
                    *panel.add(k * columns) = *key.add(k);
                }
                let value = key.add(hidden);
                std::ptr::copy_nonoverlapping(value, values.add(row * wide), dim);
                for k in dim..wide {
                    *values.add(row * wide + k) = 0.0;
                }
            }
            // What another sequence left there gives scores, which are not used, and must not be slow.
            for row in length..length.next_multiple_of(columns) {
                let panel = keys.add(row / columns * columns * dim + row % columns);
                for k in 0..dim {
                    *panel.add(k * columns) = 0.0;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn queries(_queries: *mut f32, _dim: usize) {}

    #[inline(always)]
    unsafe fn score(
        scores: *mut f32,
        queries: *const f32,
        dim: usize,
        keys: *const f32,
        key: usize,
        count: usize,
    ) {
        let columns = 2 * S::LANES;
        unsafe {
            for first in (0..count).step_by(columns) {
                let mut sums = [[S::splat(0.0); 2]; ROWS];
                let panel = keys.add((key + first) * dim);
                tile::<S, ROWS, 2>(&mut sums, dim, queries, dim, panel, columns);
                for (row, [left, right]) in sums.into_iter().enumerate() {
                    let to = scores.add(row * KEYS + first);
                    S::store(to, left);
                    S::store(to.add(S::LANES), right);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn mix(
        mixed: *mut f32,
        weights: *mut f32,
        count: usize,
        values: *const f32,
        key: usize,
        wide: usize,
    ) {
        unsafe {
            let values = values.add(key * wide);
            let mut channel = 0;
            while channel + 2 * S::LANES <= wide {
                let (mixed, values) = (mixed.add(channel), values.add(channel));
                add_to!(S, mixed, wide, ROWS, 2, |sums| {
                    tile::<S, ROWS, 2>(&mut sums, count, weights, KEYS, values, wide);
                });
                channel += 2 * S::LANES;
            }
            if channel < wide {
                let (mixed, values) = (mixed.add(channel), values.add(channel));
                add_to!(S, mixed, wide, ROWS, 1, |sums| {
                    tile::<S, ROWS, 1>(&mut sums, count, weights, KEYS, values, wide);
                });
            }
        }
    }
}
