//! AVX512-BF16: products of pairs of bfloat16.

use std::arch::x86_64::*;

use super::Dot;
use crate::simd::dispatch::operations;
use crate::simd::{Avx512, Simd};

pub(crate) struct Avx512Bf16;

impl Dot for Avx512Bf16 {
    type F = Avx512;
    type Sums = __m512;
    type Rows = [__m512; 1];
    type Inputs = __m512bh;
    type Weights = __m512bh;
    type Weight = u16;

    const TOGETHER: usize = 2;
    const BYTES: usize = 2;

    operations! {
        fn load(_from: *const i32) -> __m512 { _mm512_setzero_ps() }
        fn inputs(from: *const u8) -> __m512bh {
            std::mem::transmute(_mm512_set1_epi32(from.cast::<i32>().read_unaligned()))
        }
        fn weights(from: *const u16) -> __m512bh { std::mem::transmute(_mm512_loadu_si512(from.cast())) }
        fn add(sums: __m512, inputs: __m512bh, weights: __m512bh) -> __m512 { _mm512_dpbf16_ps(sums, inputs, weights) }
        fn to_f32(sums: __m512) -> [__m512; 1] { [sums] }
        fn store(to: *mut u8, values: __m512) { Avx512::store_bf16(to.cast(), values) }
    }
}
