//! AVX2 with FMA: 8 lanes.

use std::arch::x86_64::*;

use super::Simd;
use crate::simd::dispatch::operations;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// A mask of the first `count` lanes, of fewer than 8.
#[inline(always)]
unsafe fn first(count: usize) -> __m256i {
    const LANES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    unsafe { _mm256_loadu_si256(LANES.as_ptr().add(8 - count).cast()) }
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;

    operations! {
        fn splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
        fn load(from: *const f32) -> __m256 { _mm256_loadu_ps(from) }
        fn store(to: *mut f32, v: __m256) { _mm256_storeu_ps(to, v) }
        fn load_some(from: *const f32, count: usize) -> __m256 {
            if count >= 8 {
                _mm256_loadu_ps(from)
            } else {
                _mm256_maskload_ps(from, first(count))
            }
        }
        fn store_some(to: *mut f32, count: usize, v: __m256) {
            if count >= 8 {
                _mm256_storeu_ps(to, v);
            } else {
                _mm256_maskstore_ps(to, first(count), v);
            }
        }
        fn columns(from: *const f32, stride: usize) -> [__m256; 4] {
            let mut rows = [_mm256_setzero_ps(); 4];
            for (i, rows) in rows.iter_mut().enumerate() {
                let (low, high) = (from.add(i * stride), from.add((i + 4) * stride));
                *rows = _mm256_loadu2_m128(high, low);
            }
            let [a, b, c, d] = rows;
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            [
                _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd),
                _mm256_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                _mm256_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
            ]
        }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn abs(v: __m256) -> __m256 { _mm256_andnot_ps(_mm256_set1_ps(-0.0), v) }
        fn copy_sign(magnitude: __m256, sign: __m256) -> __m256 {
            let mask = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_and_ps(mask, sign), _mm256_andnot_ps(mask, magnitude))
        }
        fn select_greater(a: __m256, b: __m256, yes: __m256, no: __m256) -> __m256 {
            _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_GT_OQ>(a, b))
        }
        fn round(v: __m256) -> __m256 {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v)
        }
        fn lookup(table: &[f32; 8], index: __m256) -> __m256 {
            let table = _mm256_loadu_ps(table.as_ptr());
            _mm256_permutevar8x32_ps(table, _mm256_cvttps_epi32(index))
        }
        fn scale(v: __m256, n: __m256) -> __m256 {
            let exponents = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), exponents))
        }
        fn swap_pairs(v: __m256) -> __m256 { _mm256_permute_ps::<0b10_11_00_01>(v) }
        fn sum(v: __m256) -> f32 {
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
        fn largest(v: __m256) -> f32 {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
}
