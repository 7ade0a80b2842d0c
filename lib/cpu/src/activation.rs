//! The activations GELU and `SiLU`.

use std::f32::consts::LOG2_E;

use crate::exp::{FINE, exp2};
use crate::simd::Simd;

/// `x·Φ(x)`, where Φ is the normal distribution function: `x/2·(1 + erf(x/√2))`. The error is at most 1e-7·|x|.
#[inline(always)]
pub(crate) unsafe fn gelu<S: Simd>(x: S::V) -> S::V {
    /// Intervals of |x| for each unit. Beyond the eighth, Φ is 0 or 1 in f32.
    const INTERVALS: f32 = 8.0 / 5.6;
    /// Φ(|x|) - 1/2 in each interval: coefficients of powers, from the sixth, of the distance from its middle. They interpolate
    /// at Chebyshev nodes; the last ends at 1/2 in f32.
    #[rustfmt::skip]
    const COEFFICIENTS: [[f32; 8]; 7] = [
        [-2.884_510_6e-4, -2.026_854_9e-4, 1.495_846_4e-4, 7.186_695_4e-5,
         -1.962_277_7e-5, -1.316_958_1e-5, -2.312_531_3e-6, -1.874_690_6e-7],
        [0.001_172_540_6, -7.439_221_4e-4, -7.177_743e-4, 7.409_214_6e-5,
         1.626_515_1e-4, 4.622_298_4e-5, 5.797_295e-6, 3.780_458_8e-7],
        [0.003_779_782_4, 0.004_581_768, -9.384_276e-5, -0.001_459_921_7,
         -6.096_719_3e-4, -1.097_921_6e-4, -1.026_297_8e-5, -5.312_546_7e-7],
        [-0.018_820_26, 0.001_343_451_4, 0.010_171_783, 0.005_674_217_4,
         0.001_425_444_1, 1.904_045_6e-4, 1.431_885_45e-5, 6.227_882_6e-7],
        [-0.032_176_83, -0.059_137_173, -0.036_991_417, -0.011_907_371,
         -0.002_156_465_5, -2.274_428_4e-4, -1.421_036_45e-5, -5.310_667_5e-7],
        [0.262_668_13, 0.160_917_61, 0.060_394_15, 0.013_886_111,
         0.001_955_975_3, 1.687_926_7e-4, 8.924_347e-6, 3.534_437_4e-7],
        [0.136_830_66, 0.353_140_95, 0.459_940_85, 0.492_857_2,
         0.499_183_65, 0.499_940_93, 0.499_997_32, 0.499_999_9],
    ];
    unsafe {
        // From the middle of the first interval.
        let place = S::mul_add(S::abs(x), S::splat(INTERVALS), S::splat(-0.5));
        let last = S::splat(7.49);
        let place = S::select_greater(place, last, last, place);
        let interval = S::round(place);
        let apart = S::sub(place, interval);
        let mut half = S::lookup(&COEFFICIENTS[0], interval);
        for coefficients in &COEFFICIENTS[1..] {
            half = S::mul_add(half, apart, S::lookup(coefficients, interval));
        }
        S::mul_add(x, S::copy_sign(half, x), S::mul(x, S::splat(0.5)))
    }
}

/// `x/(1 + e^-x)`. The error is at most 2e-7·|x|, for |x| below 1e30.
#[inline(always)]
pub(crate) unsafe fn silu<S: Simd>(x: S::V) -> S::V {
    unsafe {
        // The power of a smaller value would be infinite. `max` returns its second argument if that is NaN.
        let exponent = S::max(S::splat(-126.0), S::mul(x, S::splat(LOG2_E)));
        let power = exp2::<S>(S::sub(S::splat(0.0), exponent), FINE);
        S::div(x, S::add(S::splat(1.0), power))
    }
}
