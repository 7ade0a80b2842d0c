//! The exponential function of base 2.

use std::f32::consts::LN_2;

use crate::simd::Simd;

/// Coefficients of `(2^r - 1)/r` for `r` from -1/2 to 1/2. 2^r has a relative error of 2e-8 before rounding.
pub(crate) const FINE: &[f32] = &[
    LN_2,
    0.240_226_48,
    0.055_503_29,
    0.009_618_374,
    0.001_339_980_9,
    0.000_153_706_32,
];

/// The same with a relative error of 1e-4, a twentieth of that of rounding to bfloat16.
pub(crate) const COARSE: &[f32] = &[0.693_282_9, 0.242_210_95, 0.055_008_93];

/// `2^x` for `x` up to 127, by coefficients; below -126, `2^-126`.
///
/// Splits `x` into an integer and a remainder of at most 1/2 without rounding.
#[inline(always)]
pub(crate) unsafe fn exp2<S: Simd>(x: S::V, coefficients: &[f32]) -> S::V {
    unsafe {
        // `max` returns its second argument if one is NaN, so that NaN stays NaN.
        let x = S::max(S::splat(-126.0), x);
        let r = S::remainder(x);
        let n = S::sub(x, r);
        let p = polynomial::<S>(coefficients, r);
        S::scale(S::mul_add(p, r, S::splat(1.0)), n)
    }
}

/// The sum of coefficients times powers of `x`, from the 0th.
#[inline(always)]
pub(crate) unsafe fn polynomial<S: Simd>(coefficients: &[f32], x: S::V) -> S::V {
    let (last, others) = coefficients.split_last().expect("there are some");
    unsafe {
        let mut sum = S::splat(*last);
        for &c in others.iter().rev() {
            sum = S::mul_add(sum, x, S::splat(c));
        }
        sum
    }
}
