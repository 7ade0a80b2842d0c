//! AVX-VNNI: as [AVX512-VNNI](super::Vnni) in vectors of 256 bits, for CPUs without AVX-512.

use std::arch::x86_64::*;

use super::Dot;
use crate::simd::Avx2;
use crate::simd::dispatch::operations;

pub(crate) struct AvxVnni;

impl Dot for AvxVnni {
    type F = Avx2;
    type Sums = __m256i;
    type Rows = [__m256; 1];
    type Inputs = __m256i;
    type Weights = __m256i;
    type Weight = i8;

    const TOGETHER: usize = 4;
    const BYTES: usize = 1;
    const ZERO_POINT: i32 = 128;

    operations! {
        fn load(from: *const i32) -> __m256i { _mm256_loadu_si256(from.cast()) }
        fn inputs(from: *const u8) -> __m256i { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
        fn weights(from: *const i8) -> __m256i { _mm256_loadu_si256(from.cast()) }
        fn add(sums: __m256i, inputs: __m256i, weights: __m256i) -> __m256i { _mm256_dpbusd_avx_epi32(sums, inputs, weights) }
        fn to_f32(sums: __m256i) -> [__m256; 1] { [_mm256_cvtepi32_ps(sums)] }
        fn store(to: *mut u8, values: __m256) {
            let shifted = _mm256_add_epi32(_mm256_cvtps_epi32(values), _mm256_set1_epi32(128));
            let (low, high) = (_mm256_castsi256_si128(shifted), _mm256_extracti128_si256::<1>(shifted));
            let words = _mm_packs_epi32(low, high);
            _mm_storel_epi64(to.cast(), _mm_packus_epi16(words, words));
        }
    }
}
