//! Scores and mixes in bfloat16 with sums in f32, by AVX512-BF16.

use std::arch::x86_64::*;

use super::{MOST_KEYS, Scratch, Task, attend};
use crate::amx::Amx;
use crate::dot::Avx512Bf16;
use crate::simd::{Avx512, Simd};
use crate::tile::dot::tile;
use crate::{Rows, RowsMut, exp};

/// See [`attention`](super::attention).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn blocks(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch) {
    unsafe { attend::<Avx512, Products>(task, out, scratch) }
}

/// The same by AMX.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vbmi,avx2,fma")]
pub(super) unsafe fn tiles(task: &Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch) {
    unsafe { super::amx::attend::<Amx>(task, out, scratch) }
}

/// A word is a pair of values.
struct Products;

impl super::Products<Avx512> for Products {
    const VALUES: usize = 2;
    // More than in f32: sums lose less precision than rounding the weights does.
    const KEYS: usize = MOST_KEYS;
    const EXP2: &[f32] = exp::COARSE;

    #[inline(always)]
    unsafe fn convert(to: *mut f32, from: *const f32, count: usize, factor: f32) {
        unsafe {
            for k in (0..count).step_by(16) {
                let values = Avx512::load_some(from.add(k), count - k);
                let values = Avx512::mul(values, Avx512::splat(factor));
                Avx512::store_bf16(to.add(k / 2).cast(), values);
            }
        }
    }

    #[inline(always)]
    unsafe fn stack(to: *mut f32, rows: Rows<'_>, channel: usize, dim: usize, wide: usize) {
        unsafe {
            for pair in 0..rows.rows().div_ceil(2) {
                let first = rows.at(2 * pair).add(channel);
                for k in (0..dim).step_by(16) {
                    let low = Avx512::load_some(first.add(k), dim - k);
                    let high = if 2 * pair + 1 < rows.rows() {
                        Avx512::load_some(first.add(rows.width() + k), dim - k)
                    } else {
                        Avx512::splat(0.0)
                    };
                    Avx512::store_bf16_pairs(to.add(pair * wide + k).cast(), low, high);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh(row: *mut f32, key: usize, weights: __m512) {
        unsafe { Avx512::store_bf16(row.add(key / 2).cast(), weights) }
    }

    #[inline(always)]
    unsafe fn tile<const ROWS: usize, const VECTORS: usize>(
        sums: &mut [[__m512; VECTORS]; ROWS],
        words: usize,
        a: *const f32,
        a_stride: usize,
        b: *const f32,
        b_stride: usize,
    ) {
        let (a, a_stride) = (a.cast(), a_stride * size_of::<f32>());
        let (b, b_stride) = (b.cast(), 2 * b_stride);
        *sums =
            unsafe { tile::<Avx512Bf16, ROWS, VECTORS>(*sums, words, a, a_stride, b, b_stride) };
    }
}
