//! Plain Rust, for any CPU.

use super::Dot;
use crate::simd::{Portable, Simd};

const LANES: usize = Portable::LANES;

pub(crate) struct PortablePairs;

impl Dot for PortablePairs {
    type F = Portable;
    type Sums = [i32; LANES];
    type Inputs = [i16; 2];
    type Weights = [[i8; 2]; LANES];

    const TOGETHER: usize = 2;
    const BYTES: usize = 2;
    const SHIFT: i32 = 0;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> [i32; LANES] {
        unsafe { from.cast::<[i32; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn inputs(from: *const u8) -> [i16; 2] {
        unsafe { from.cast::<[i16; 2]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [[i8; 2]; LANES] {
        unsafe { from.cast::<[[i8; 2]; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn add(sums: [i32; LANES], inputs: [i16; 2], weights: [[i8; 2]; LANES]) -> [i32; LANES] {
        let product = |lane: usize, i: usize| i32::from(inputs[i]) * i32::from(weights[lane][i]);
        std::array::from_fn(|lane| sums[lane] + product(lane, 0) + product(lane, 1))
    }

    #[inline(always)]
    unsafe fn to_f32(sums: [i32; LANES]) -> [f32; LANES] {
        sums.map(|sum| sum as f32)
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, values: [f32; LANES]) {
        unsafe {
            to.cast::<[i16; LANES]>()
                .write_unaligned(values.map(|value| value as i16))
        }
    }
}
