//! AVX-512: 16 lanes.

use std::arch::x86_64::*;

use super::Simd;
use crate::power_table::{MANTISSAS, OTHER_BITS};
use crate::simd::dispatch::operations;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// A mask of the first `count` lanes, of fewer than 16.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    (1 << count) - 1
}

/// Rounds to bfloat16. Only with AVX512-BF16.
#[inline(always)]
unsafe fn round(v: __m512) -> __m256i {
    unsafe { std::mem::transmute(_mm512_cvtneps_pbh(v)) }
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;

    operations! {
        fn store_bf16(to: *mut u16, v: __m512) { _mm256_storeu_si256(to.cast(), round(v)) }
        fn store_bf16_both(to: *mut u16, low: __m512, high: __m512) {
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.cast(), both);
        }
        fn store_bf16_pairs(to: *mut u16, low: __m512, high: __m512) {
            let [low, high] = [low, high].map(|v| _mm512_cvtepu16_epi32(round(v)));
            let pairs = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
            _mm512_storeu_si512(to.cast(), pairs);
        }
        fn interleave(to: *mut u16, rows: [*const u16; 2]) {
            let [a, b] = rows.map(|row| _mm512_loadu_si512(row.cast()));
            // Quarters of a vector each: low ones of rows, then high ones.
            let (low, high) = (_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
            let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
            let last = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
            let [first, last] = [first, last].map(|order| _mm512_permutex2var_epi64(low, order, high));
            _mm512_storeu_si512(to.cast(), first);
            _mm512_storeu_si512(to.add(32).cast(), last);
        }
        fn store_powers(to: *mut u16, x: [__m512; 2], sums: [__m512; 2]) -> [__m512; 2] {
            let [sums, odd] = sums;
            let [low, high] = x.map(|x| _mm512_castps_si512(x));
            let mut odd = _mm512_castps_si512(odd);
            let expected = _mm512_set1_epi32(OTHER_BITS.cast_signed());
            for x in [low, high] {
                // odd | (x ^ expected)
                odd = _mm512_ternarylogic_epi32::<0xF6>(odd, x, expected);
            }
            let digits = _mm512_mask_blend_epi16(0xAAAA_AAAA, low, _mm512_slli_epi32::<16>(high));
            let table = MANTISSAS.as_ptr();
            let [first, last] = [table, table.add(64)].map(|half| _mm512_loadu_si512(half.cast()));
            let mantissas = _mm512_permutex2var_epi8(first, digits, last);
            // Bits of the mantissa where the mask is set, else those of the exponent.
            let mask = _mm512_set1_epi16(0x7F);
            let powers = _mm512_ternarylogic_epi32::<0xCA>(mask, mantissas, digits);
            _mm512_storeu_si512(to.cast(), powers);
            let ones = _mm512_set1_epi16(0x3F80);
            let [powers, ones]: [__m512bh; 2] = std::mem::transmute([powers, ones]);
            let sums = _mm512_dpbf16_ps(sums, powers, ones);
            [sums, _mm512_castsi512_ps(odd)]
        }
        fn fitted(odd: __m512) -> bool {
            let bits = _mm512_set1_epi32(-1 << 15);
            _mm512_test_epi32_mask(_mm512_castps_si512(odd), bits) == 0
        }
        fn widen(from: *const u16) -> [__m512; 2] {
            let pairs = _mm512_loadu_si512(from.cast());
            let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(-1 << 16));
            [_mm512_slli_epi32::<16>(pairs), odd].map(|bits| _mm512_castsi512_ps(bits))
        }
        fn splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        fn load(from: *const f32) -> __m512 { _mm512_loadu_ps(from) }
        fn store(to: *mut f32, v: __m512) { _mm512_storeu_ps(to, v) }
        fn load_some(from: *const f32, count: usize) -> __m512 {
            if count >= 16 {
                _mm512_loadu_ps(from)
            } else {
                _mm512_maskz_loadu_ps(first(count), from)
            }
        }
        fn store_some(to: *mut f32, count: usize, v: __m512) {
            if count >= 16 {
                _mm512_storeu_ps(to, v);
            } else {
                _mm512_mask_storeu_ps(to, first(count), v);
            }
        }
        fn columns(from: *const f32, stride: usize) -> [__m512; 4] {
            let mut rows = [_mm512_setzero_ps(); 4];
            for (i, rows) in rows.iter_mut().enumerate() {
                let (low, high) = (from.add(i * stride), from.add((i + 8) * stride));
                let low = _mm256_loadu2_m128(low.add(4 * stride), low);
                let high = _mm256_loadu2_m128(high.add(4 * stride), high);
                *rows = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
            }
            let [a, b, c, d] = rows;
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            [
                _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd),
                _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd),
                _mm512_shuffle_ps::<0b01_00_01_00>(ab_high, cd_high),
                _mm512_shuffle_ps::<0b11_10_11_10>(ab_high, cd_high),
            ]
        }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn abs(v: __m512) -> __m512 { _mm512_abs_ps(v) }
        fn copy_sign(magnitude: __m512, sign: __m512) -> __m512 {
            let mask = _mm512_set1_epi32(i32::MIN);
            // Bits of the sign where the mask is set, else those of the magnitude.
            let bits = _mm512_ternarylogic_epi32::<0xCA>(
                mask,
                _mm512_castps_si512(sign),
                _mm512_castps_si512(magnitude),
            );
            _mm512_castsi512_ps(bits)
        }
        fn clamp(v: __m512, most: f32) -> __m512 {
            // The lesser magnitude, with the sign of the first.
            _mm512_range_ps::<0b0010>(v, _mm512_set1_ps(most))
        }
        fn select_greater(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), no, yes)
        }
        fn round(v: __m512) -> __m512 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v)
        }
        fn remainder(v: __m512) -> __m512 {
            _mm512_reduce_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v)
        }
        fn lookup(table: &[f32; 8], index: __m512) -> __m512 {
            let table = _mm512_broadcast_f32x8(_mm256_loadu_ps(table.as_ptr()));
            _mm512_permutexvar_ps(_mm512_cvttps_epi32(index), table)
        }
        fn scale(v: __m512, n: __m512) -> __m512 { _mm512_scalef_ps(v, n) }
        fn swap_pairs(v: __m512) -> __m512 { _mm512_permute_ps::<0b10_11_00_01>(v) }
        fn sum(v: __m512) -> f32 { _mm512_reduce_add_ps(v) }
        fn largest(v: __m512) -> f32 { _mm512_reduce_max_ps(v) }
    }
}
