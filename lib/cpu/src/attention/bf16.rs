//! Scores and mixes in bfloat16 with sums in f32, by AVX512-BF16.

use std::arch::x86_64::*;

use super::{Head, KEYS, Scratch, Task, add_to, blocks, padded};
use crate::simd::{Avx512, Simd};
use crate::tile::bf16::{round, tile};
use crate::{Rows, RowsMut};

/// Rows of a tile.
const ROWS: usize = 12;
/// Keys of a panel.
const COLUMNS: usize = 32;

/// See [`attention`](super::attention).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn attend(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch) {
    unsafe { blocks::<Avx512, Products, ROWS>(task, out, scratch) }
}

/// Panels of keys are `(dim/2, COLUMNS, 2)`, values `(length/2, wide, 2)`: what is multiplied and summed up as a pair lies
/// side by side.
struct Products;

impl super::Products<Avx512, ROWS> for Products {
    #[inline(always)]
    unsafe fn pack(qkv: Rows<'_>, head: Head, keys: *mut f32, values: *mut f32) {
        let (length, dim) = (qkv.rows(), head.dim);
        let (hidden, wide) = (qkv.width() / 3, padded::<Avx512>(head));
        let (keys, values) = (keys.cast::<u32>(), values.cast::<u16>());
        // The values of a row are the first or the second of each pair.
        let slot = |row: usize| row / 2 * wide * 2 + row % 2;
        unsafe {
            for row in 0..length {
                let key = qkv.at(row).add(hidden + head.number * dim);
                let panel = keys.add(row / COLUMNS * COLUMNS * dim / 2 + row % COLUMNS);
                for pair in 0..dim / 2 {
                    let (low, high) = (round(*key.add(2 * pair)), round(*key.add(2 * pair + 1)));
                    *panel.add(pair * COLUMNS) = u32::from(low) | u32::from(high) << 16;
                }
                let (value, to) = (key.add(hidden), values.add(slot(row)));
                for k in 0..dim {
                    *to.add(2 * k) = round(*value.add(k));
                }
                for k in dim..wide {
                    *to.add(2 * k) = 0;
                }
            }
            // What another sequence left there is multiplied, too: by nothing, or not used.
            for row in length..length.next_multiple_of(COLUMNS) {
                let panel = keys.add(row / COLUMNS * COLUMNS * dim / 2 + row % COLUMNS);
                for pair in 0..dim / 2 {
                    *panel.add(pair * COLUMNS) = 0;
                }
            }
            if length % 2 == 1 {
                let to = values.add(slot(length));
                for k in 0..wide {
                    *to.add(2 * k) = 0;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn queries(queries: *mut f32, dim: usize) {
        unsafe {
            let to = queries.cast::<u16>();
            for i in 0..ROWS * dim {
                *to.add(i) = round(*queries.add(i));
            }
        }
    }

    #[inline(always)]
    unsafe fn score(
        scores: *mut f32,
        queries: *const f32,
        dim: usize,
        keys: *const f32,
        key: usize,
        count: usize,
    ) {
        let (queries, keys) = (queries.cast::<u16>(), keys.cast::<u16>());
        unsafe {
            for first in (0..count).step_by(COLUMNS) {
                let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
                let panel = keys.add((key + first) * dim);
                tile::<ROWS, 2>(&mut sums, dim / 2, queries, dim, panel, 2 * COLUMNS);
                for (row, [left, right]) in sums.into_iter().enumerate() {
                    let to = scores.add(row * KEYS + first);
                    _mm512_storeu_ps(to, left);
                    _mm512_storeu_ps(to.add(16), right);
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
        let pairs = count.div_ceil(2);
        unsafe {
            // Rounded in place: a row takes the first half of its room.
            for row in 0..ROWS {
                let row = weights.add(row * KEYS);
                for at in (0..count).step_by(32) {
                    let low = _mm512_loadu_ps(row.add(at));
                    let high = _mm512_loadu_ps(row.add(at + 16));
                    let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                    _mm512_storeu_si512(row.cast::<u16>().add(at).cast(), both);
                }
            }
            let weights = weights.cast::<u16>();
            let values = values.cast::<u16>().add(key * wide);
            let mut channel = 0;
            while channel + 32 <= wide {
                let (mixed, values) = (mixed.add(channel), values.add(2 * channel));
                add_to!(Avx512, mixed, wide, ROWS, 2, |sums| {
                    tile::<ROWS, 2>(&mut sums, pairs, weights, 2 * KEYS, values, 2 * wide);
                });
                channel += 32;
            }
            if channel < wide {
                let (mixed, values) = (mixed.add(channel), values.add(2 * channel));
                add_to!(Avx512, mixed, wide, ROWS, 1, |sums| {
                    tile::<ROWS, 1>(&mut sums, pairs, weights, 2 * KEYS, values, 2 * wide);
                });
            }
        }
    }
}
