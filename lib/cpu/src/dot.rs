//! Dot products of 8-bit integers, where all instruction sets give the same sums, and of bfloat16.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vnni;

use crate::simd::Simd;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx_vnni::AvxVnni;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2Pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512Pairs;
#[cfg(target_arch = "x86_64")]
pub(crate) use bf16::Avx512Bf16;
pub(crate) use portable::PortableDot;
#[cfg(target_arch = "x86_64")]
pub(crate) use vnni::Vnni;

/// Operations on vectors of sums, one for each of [`Simd::LANES`] columns of weights.
///
/// # Safety
/// As for [`Simd`].
pub(crate) trait Dot {
    /// Vectors of f32 with as many lanes.
    type F: Simd;
    /// A sum of products.
    type Sum;
    /// A vector of sums.
    type Sums: Copy;
    /// Inputs, the same in every lane.
    type Inputs: Copy;
    /// Weights of each column, as many as inputs.
    type Weights: Copy;
    /// A weight as [`weights`](Self::weights) loads it.
    type Weight: Copy;

    /// The products that are added to a sum at once.
    const TOGETHER: usize;
    /// Bytes of an input in memory.
    const BYTES: usize;
    /// The value that represents zero: inputs in memory are larger by it.
    const ZERO_POINT: i32 = 0;

    unsafe fn load(from: *const Self::Sum) -> Self::Sums;
    /// Loads the next inputs of a row.
    unsafe fn inputs(from: *const u8) -> Self::Inputs;
    /// Returns `count` weights in the form that [`weights`](Self::weights) loads: `from` itself, or what it wrote to `room`,
    /// which has memory for whole vectors.
    #[inline(always)]
    unsafe fn widen(
        from: *const i8,
        _count: usize,
        _room: *mut Self::Weight,
    ) -> *const Self::Weight {
        const { assert!(size_of::<Self::Weight>() == 1, "bytes need no widening") };
        from.cast()
    }
    /// Loads the weights for these inputs: `(LANES, TOGETHER)`.
    unsafe fn weights(from: *const Self::Weight) -> Self::Weights;
    unsafe fn add(sums: Self::Sums, inputs: Self::Inputs, weights: Self::Weights) -> Self::Sums;
    unsafe fn to_f32(sums: Self::Sums) -> <Self::F as Simd>::V;
    /// Stores values as inputs: integers from -127 to 127, of which others give arbitrary inputs, or rounded to bfloat16.
    unsafe fn store(to: *mut u8, values: <Self::F as Simd>::V);
}
