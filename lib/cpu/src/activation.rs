//! The activations GELU and `SiLU`.

use std::f32::consts::LOG2_E;

use crate::exp::{exp2, polynomial};
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

/// [`gelu`] with an error of at most 9e-5, for values that are rounded to bfloat16.
#[inline(always)]
pub(crate) unsafe fn coarse_gelu<S: Simd>(x: S::V) -> S::V {
    /// Beyond, Φ is 0 or 1.
    const END: f32 = 4.16;
    /// `(Φ(x) - 1/2)/x`: coefficients of powers of x². Their largest error in `x·Φ(x)` is the least of those that give 1/2 at the end.
    const COEFFICIENTS: [f32; 8] = [
        0.398_492_52,
        -0.065_572_03,
        0.009_322_301_5,
        -9.568_342_4e-4,
        6.772_845_5e-5,
        -3.099_782_4e-6,
        8.176_121_5e-8,
        -9.376_083e-10,
    ];
    unsafe {
        let near = S::clamp(x, END);
        let p = polynomial::<S>(&COEFFICIENTS, S::mul(near, near));
        S::mul(x, S::mul_add(near, p, S::splat(0.5)))
    }
}

/// `x/(1 + e^-x)`, for |x| below 1e30. With [`FINE`](crate::exp::FINE) coefficients the error is at most 2e-7·|x|.
#[inline(always)]
pub(crate) unsafe fn silu<S: Simd>(x: S::V, coefficients: &[f32]) -> S::V {
    unsafe {
        // The power of a smaller value would be infinite. `max` returns its second argument if that is NaN.
        let exponent = S::max(S::splat(-126.0), S::mul(x, S::splat(LOG2_E)));
        let power = exp2::<S>(S::sub(S::splat(0.0), exponent), coefficients);
        S::div(x, S::add(S::splat(1.0), power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Scalar;

    #[test]
    fn coarse_gelu_is_as_exact_as_it_says_and_ends_where_gelu_does() {
        for x in (-12_000..=12_000).map(|x| x as f32 / 1000.0) {
            let [[found], [expected]] =
                unsafe { [coarse_gelu::<Scalar>([x]), gelu::<Scalar>([x])] };
            let error = (found - expected).abs();
            assert!(error < 9e-5, "{x}: {found}, expected {expected}");
        }
        let [far] = unsafe { coarse_gelu::<Scalar>([-1000.0]) };
        assert!(far.abs() < 1e-3);
    }
}
