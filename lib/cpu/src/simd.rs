//! Vectors of f32, one implementation for each instruction set.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod dispatch;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
#[cfg(test)]
pub(crate) use portable::Lanes;
pub(crate) use portable::{Pair, Portable, Scalar};

/// Operations on vectors of [`LANES`](Self::LANES) values.
///
/// # Safety
/// The CPU must have the instructions of the implementation, and the caller must be compiled for them: all methods are
/// inlined into a function with the right `target_feature`. Pointers must be valid for as many values.
pub(crate) trait Simd: Copy {
    /// A vector.
    type V: Copy;
    /// The values of a vector.
    const LANES: usize;

    unsafe fn splat(value: f32) -> Self::V;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Loads the first `count` values, at most `LANES`; the others are zero.
    unsafe fn load_some(from: *const f32, count: usize) -> Self::V;
    /// Stores the first `count` values, at most `LANES`.
    unsafe fn store_some(to: *mut f32, count: usize, v: Self::V);
    /// Loads four columns of a matrix of `LANES` rows, `stride` apart.
    unsafe fn columns(from: *const f32, stride: usize) -> [Self::V; 4];
    /// Rounds to bfloat16 and stores.
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u16, v: Self::V) {
        let mut values = [0f32; 16];
        unsafe { Self::store(values.as_mut_ptr(), v) };
        for (at, &value) in values.iter().enumerate().take(Self::LANES) {
            unsafe { *to.add(at) = half::bf16::from_f32(value).to_bits() }
        }
    }
    /// Rounds two vectors to bfloat16 and stores one after the other.
    #[inline(always)]
    unsafe fn store_bf16_both(to: *mut u16, low: Self::V, high: Self::V) {
        unsafe {
            Self::store_bf16(to, low);
            Self::store_bf16(to.add(Self::LANES), high);
        }
    }
    /// Rounds two vectors to bfloat16 and stores them in pairs: values of one lane are neighbours.
    #[inline(always)]
    unsafe fn store_bf16_pairs(to: *mut u16, low: Self::V, high: Self::V) {
        let mut halves = [0; 32];
        unsafe { Self::store_bf16_both(halves.as_mut_ptr(), low, high) }
        for at in 0..Self::LANES {
            let pair = [halves[at], halves[Self::LANES + at]];
            unsafe { *to.cast::<[u16; 2]>().add(at) = pair }
        }
    }
    /// Stores 32 pairs of the values of two rows of bfloat16.
    #[inline(always)]
    unsafe fn interleave(to: *mut u16, rows: [*const u16; 2]) {
        for at in 0..32 {
            let pair = rows.map(|row| unsafe { *row.add(at) });
            unsafe { *to.cast::<[u16; 2]>().add(at) = pair }
        }
    }
    /// Stores [powers of 2](crate::power_table::power) in pairs of bfloat16: values of one lane are neighbours. Adds those of a pair to the first of
    /// `sums`, and bits of exponents that do not fit to the second.
    #[inline(always)]
    unsafe fn store_powers(to: *mut u16, x: [Self::V; 2], sums: [Self::V; 2]) -> [Self::V; 2] {
        let mut lanes = [[0f32; 16]; 4];
        let [low, high, sum, odd] = &mut lanes;
        unsafe {
            for (lanes, v) in [&mut *low, high, sum, odd]
                .into_iter()
                .zip([x, sums].as_flattened())
            {
                Self::store(lanes.as_mut_ptr(), *v);
            }
            for at in 0..Self::LANES {
                let pair = [low[at], high[at]].map(crate::power_table::power);
                *to.cast::<[u16; 2]>().add(at) = pair.map(|(power, _)| power);
                for (power, bits) in pair {
                    sum[at] += f32::from_bits(u32::from(power) << 16);
                    odd[at] = f32::from_bits(odd[at].to_bits() | bits);
                }
            }
            [&*sum, odd].map(|lanes| Self::load(lanes.as_ptr()))
        }
    }
    /// Whether all exponents fitted: see [`store_powers`](Self::store_powers).
    #[inline(always)]
    unsafe fn fitted(odd: Self::V) -> bool {
        let mut lanes = [0f32; 16];
        unsafe { Self::store(lanes.as_mut_ptr(), odd) };
        lanes.iter().all(|lane| lane.to_bits() == 0)
    }
    /// Loads pairs of bfloat16: the first of each, and the second.
    #[inline(always)]
    unsafe fn widen(from: *const u16) -> [Self::V; 2] {
        let (mut even, mut odd) = ([0f32; 16], [0f32; 16]);
        for at in 0..Self::LANES {
            let pair = unsafe { from.cast::<[u16; 2]>().add(at).read() };
            [even[at], odd[at]] = pair.map(|half| f32::from_bits(u32::from(half) << 16));
        }
        [even, odd].map(|values| unsafe { Self::load(values.as_ptr()) })
    }
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a·b + c`, rounded once if the instruction set can.
    unsafe fn mul_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger value; `b` if one is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn abs(v: Self::V) -> Self::V;
    /// `magnitude` with the sign of `sign`.
    unsafe fn copy_sign(magnitude: Self::V, sign: Self::V) -> Self::V;
    /// The value of at most this magnitude that is nearest; arbitrary for NaN.
    #[inline(always)]
    unsafe fn clamp(v: Self::V, most: f32) -> Self::V {
        unsafe {
            let (most, magnitude) = (Self::splat(most), Self::abs(v));
            Self::select_greater(magnitude, most, Self::copy_sign(most, v), v)
        }
    }
    /// `a > b ? yes : no`, value by value.
    unsafe fn select_greater(a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// Rounds to the nearest integer.
    unsafe fn round(v: Self::V) -> Self::V;
    /// `v - round(v)`, exactly.
    #[inline(always)]
    unsafe fn remainder(v: Self::V) -> Self::V {
        unsafe { Self::sub(v, Self::round(v)) }
    }
    /// Returns the values of a table at integers from 0 to 7, which are given as `index`; at NaN, any value.
    unsafe fn lookup(table: &[f32; 8], index: Self::V) -> Self::V;
    /// `v·2^n` for integers `n` from -126 to 127, if that is a normal number.
    unsafe fn scale(v: Self::V, n: Self::V) -> Self::V;
    /// Swaps the values of each pair. Undefined for fewer than two values.
    unsafe fn swap_pairs(v: Self::V) -> Self::V;
    unsafe fn sum(v: Self::V) -> f32;
    unsafe fn largest(v: Self::V) -> f32;
}

/// Prefetches a cache line. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(line: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, which does not access memory visibly.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Prefetches a cache line to the second-level cache. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_far(line: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for [`prefetch`].
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
