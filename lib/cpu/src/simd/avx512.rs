//! AVX-512: 16 lanes.

use std::arch::x86_64::*;

use super::Simd;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn abs(v: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(v) }
    }

    #[inline(always)]
    unsafe fn copy_sign(magnitude: __m512, sign: __m512) -> __m512 {
        unsafe {
            let mask = _mm512_set1_epi32(i32::MIN);
            // Bits of the sign where the mask is set, else those of the magnitude.
            let bits = _mm512_ternarylogic_epi32::<0xCA>(
                mask,
                _mm512_castps_si512(sign),
                _mm512_castps_si512(magnitude),
            );
            _mm512_castsi512_ps(bits)
        }
    }

    #[inline(always)]
    unsafe fn select_greater(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), no, yes) }
    }

    #[inline(always)]
    unsafe fn round(v: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    unsafe fn scale(v: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(v, n) }
    }

    #[inline(always)]
    unsafe fn swap_pairs(v: __m512) -> __m512 {
        unsafe { _mm512_permute_ps::<0b10_11_00_01>(v) }
    }

    #[inline(always)]
    unsafe fn sum(v: __m512) -> f32 {
        unsafe { _mm512_reduce_add_ps(v) }
    }

    #[inline(always)]
    unsafe fn largest(v: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(v) }
    }
}
