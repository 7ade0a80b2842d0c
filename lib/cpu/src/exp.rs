//! Exponential functions, to an error of one or two units in the last place.

use std::f32::consts::{LN_2, LOG2_E};

use crate::simd::Simd;

/// `2^x` for `x` up to 127; below -126, `2^-126`.
///
/// Splits `x` into an integer and a remainder of at most 1/2 without rounding.
#[inline(always)]
pub(crate) unsafe fn exp2<S: Simd>(x: S::V) -> S::V {
    unsafe {
        // `max` returns its second argument if one is NaN, so that NaN stays NaN.
        let x = S::max(S::splat(-126.0), x);
        let n = S::round(x);
        S::scale(exp2_of_rest::<S>(S::sub(x, n)), n)
    }
}

/// `e^x` for `x` up to 88; below -87.3, `e^-87.3`.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // ln 2 in two parts. The first has 9 bits, so that its product with a 7-bit integer is exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    unsafe {
        let x = S::max(S::splat(-87.3), x);
        let n = S::round(S::mul(x, S::splat(LOG2_E)));
        let rest = S::mul_add(n, S::splat(-HIGH), x);
        let rest = S::mul_add(n, S::splat(-LOW), rest);
        S::scale(exp2_of_rest::<S>(S::mul(rest, S::splat(LOG2_E))), n)
    }
}

/// `2^r` for `r` from -1/2 to 1/2.
#[inline(always)]
unsafe fn exp2_of_rest<S: Simd>(r: S::V) -> S::V {
    // (2^r - 1)/r, fitted on this interval. 2^r has a relative error of 2e-8 before rounding.
    const C: [f32; 6] = [
        LN_2,
        0.240_226_48,
        0.055_503_29,
        0.009_618_374,
        0.001_339_980_9,
        0.000_153_706_32,
    ];
    unsafe {
        let mut p = S::splat(C[5]);
        for i in (0..5).rev() {
            p = S::mul_add(p, r, S::splat(C[i]));
        }
        S::mul_add(p, r, S::splat(1.0))
    }
}
