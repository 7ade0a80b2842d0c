//! AVX2: products of pairs, widened to 16 bits, because its products of bytes saturate.

use std::arch::x86_64::*;

use super::Dot;
use crate::simd::Avx2;
use crate::simd::dispatch::operations;

pub(crate) struct Avx2Pairs;

impl Dot for Avx2Pairs {
    type F = Avx2;
    type Sums = __m256i;
    type Rows = [__m256; 1];
    type Inputs = __m256i;
    type Weights = __m256i;
    type Weight = i16;

    const TOGETHER: usize = 2;
    const BYTES: usize = 2;

    operations! {
        fn load(from: *const i32) -> __m256i { _mm256_loadu_si256(from.cast()) }
        fn inputs(from: *const u8) -> __m256i { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
        fn widen(from: *const i8, count: usize, room: *mut i16) -> *const i16 {
            for k in (0..count).step_by(16) {
                let wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(from.add(k).cast()));
                _mm256_storeu_si256(room.add(k).cast(), wide);
            }
            room
        }
        fn weights(from: *const i16) -> __m256i { _mm256_loadu_si256(from.cast()) }
        fn add(sums: __m256i, inputs: __m256i, weights: __m256i) -> __m256i {
            _mm256_add_epi32(sums, _mm256_madd_epi16(inputs, weights))
        }
        fn to_f32(sums: __m256i) -> [__m256; 1] { [_mm256_cvtepi32_ps(sums)] }
        fn store(to: *mut u8, values: __m256) {
            let wide = _mm256_cvtps_epi32(values);
            let (low, high) = (_mm256_castsi256_si128(wide), _mm256_extracti128_si256::<1>(wide));
            _mm_storeu_si128(to.cast(), _mm_packs_epi32(low, high));
        }
    }
}
