//! The error function and GELU.

use crate::exp::exp;
use crate::simd::Simd;

/// `x/2·(1 + erf(x/√2))`.
#[inline(always)]
pub(crate) unsafe fn gelu<S: Simd>(x: S::V) -> S::V {
    unsafe {
        let half = S::mul(x, S::splat(0.5));
        let erf = erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2)));
        S::mul_add(half, erf, half)
    }
}

/// The error function to two units in the last place: a polynomial in `x²` near 0, otherwise `1 - e^p(|x|)`.
///
/// Coefficients by N. Juffa, "Implementation of `erff()` with a maximum error of less than 1 ulp", 2018.
#[inline(always)]
unsafe fn erf<S: Simd>(x: S::V) -> S::V {
    const NEAR: [f32; 6] = [
        -5.967_617e-4,
        4.991_194_2e-3,
        -2.676_813_5e-2,
        1.128_199_25e-1,
        -3.761_253_4e-1,
        1.283_791_7e-1,
    ];
    const FAR: [f32; 7] = [
        -1.728_534_7e-5,
        3.831_974e-4,
        -3.883_964e-3,
        2.425_462_2e-2,
        -1.067_778_8e-1,
        -6.348_467e-1,
        -1.287_175_1e-1,
    ];
    /// The boundary of the two formulas.
    const BORDER: f32 = 475.0 / 512.0;
    unsafe {
        let t = S::abs(x);
        let square = S::mul(x, x);
        let mut near = S::splat(NEAR[0]);
        for &c in &NEAR[1..] {
            near = S::mul_add(near, square, S::splat(c));
        }
        let near = S::mul_add(near, x, x);
        let mut far = S::splat(FAR[0]);
        for &c in &FAR[1..] {
            far = S::mul_add(far, t, S::splat(c));
        }
        // Above 4 the result is 1 in f32, and the polynomial is not accurate.
        let far = S::select_greater(
            t,
            S::splat(4.0),
            S::splat(-87.0),
            S::mul_add(far, t, S::sub(S::splat(0.0), t)),
        );
        let far = S::sub(S::splat(1.0), exp::<S>(far));
        S::select_greater(t, S::splat(BORDER), S::copy_sign(far, x), near)
    }
}
