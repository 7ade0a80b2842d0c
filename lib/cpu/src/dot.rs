//! Dot products of 8-bit integers, where all instruction sets give the same sums, and of bfloat16.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx_vnni;
#[cfg(target_arch = "x86_64")]
mod bf16;
#[cfg(target_arch = "aarch64")]
mod mmla;
mod portable;
#[cfg(target_arch = "aarch64")]
mod sdot;
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
#[cfg(target_arch = "aarch64")]
pub(crate) use mmla::{Bfmmla, Smmla};
pub(crate) use portable::PortableDot;
#[cfg(target_arch = "aarch64")]
pub(crate) use sdot::Sdot;
#[cfg(target_arch = "x86_64")]
pub(crate) use vnni::Vnni;

/// Operations on vectors of sums, one for each of [`Simd::LANES`] columns of weights and [`ROWS`](Self::ROWS) rows of inputs.
///
/// # Safety
/// As for [`Simd`].
pub(crate) trait Dot {
    /// Vectors of f32 with as many lanes.
    type F: Simd;
    /// A vector of sums.
    type Sums: Copy;
    /// The sums of each row as f32.
    type Rows: IntoIterator<Item = <Self::F as Simd>::V>;
    /// Inputs of each row, the same for every column.
    type Inputs: Copy;
    /// Weights of each column, as many as inputs.
    type Weights: Copy;
    /// A weight as [`weights`](Self::weights) loads it.
    type Weight: Copy;

    /// The rows of a vector of sums. In memory, their inputs alternate: `(steps, ROWS, TOGETHER)`.
    const ROWS: usize = 1;
    /// The products that are added to a sum at once.
    const TOGETHER: usize;
    /// Bytes of an input in memory.
    const BYTES: usize;
    /// The value that represents zero: inputs in memory are larger by it.
    const ZERO_POINT: i32 = 0;

    /// Loads the initial sums of columns, which are zero without a zero point.
    unsafe fn load(from: *const i32) -> Self::Sums;
    /// Returns the byte where the inputs of a row begin, if rows have `stride` bytes. Those from `k` follow `k·BYTES·ROWS` bytes later.
    #[inline(always)]
    fn row(row: usize, stride: usize) -> usize {
        row / Self::ROWS * Self::ROWS * stride + row % Self::ROWS * Self::TOGETHER * Self::BYTES
    }
    /// Loads the next inputs.
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
    unsafe fn to_f32(sums: Self::Sums) -> Self::Rows;
    /// Stores values as inputs of a row: integers from -127 to 127, of which others give arbitrary inputs, or rounded to bfloat16.
    unsafe fn store(to: *mut u8, values: <Self::F as Simd>::V);
}
