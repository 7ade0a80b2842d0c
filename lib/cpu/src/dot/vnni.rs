//! AVX512-VNNI: products of four unsigned with four signed bytes.

use std::arch::x86_64::*;

use super::Dot;
use crate::simd::Avx512;
use crate::simd::dispatch::operations;

pub(crate) struct Vnni;

impl Dot for Vnni {
    type F = Avx512;
    type Sums = __m512i;
    type Rows = [__m512; 1];
    type Inputs = __m512i;
    type Weights = __m512i;
    type Weight = i8;

    const TOGETHER: usize = 4;
    const BYTES: usize = 1;
    const ZERO_POINT: i32 = 128;

    operations! {
        fn load(from: *const i32) -> __m512i { _mm512_loadu_si512(from.cast()) }
        fn inputs(from: *const u8) -> __m512i { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
        fn weights(from: *const i8) -> __m512i { _mm512_loadu_si512(from.cast()) }
        fn add(sums: __m512i, inputs: __m512i, weights: __m512i) -> __m512i { _mm512_dpbusd_epi32(sums, inputs, weights) }
        fn to_f32(sums: __m512i) -> [__m512; 1] { [_mm512_cvtepi32_ps(sums)] }
        fn store(to: *mut u8, values: __m512) {
            let shifted = _mm512_add_epi32(_mm512_cvtps_epi32(values), _mm512_set1_epi32(128));
            _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(shifted));
        }
    }
}
