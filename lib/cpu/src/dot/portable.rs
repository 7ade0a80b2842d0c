//! Any CPU. Integers are f32, which old CPUs multiply faster. Below 2^24 that is exact.

use super::Dot;
use crate::dispatch::operations;
use crate::simd::{Portable, Simd};

const LANES: usize = Portable::LANES;

pub(crate) struct PortableDot;

impl Dot for PortableDot {
    type F = Portable;
    type Sums = [f32; LANES];
    type Inputs = f32;
    type Weights = [f32; LANES];
    type Weight = f32;

    const TOGETHER: usize = 1;
    const BYTES: usize = size_of::<f32>();
    const ZERO_POINT: i32 = 0;

    operations! {
        fn load(from: *const i32) -> [f32; LANES] {
            let integers = unsafe { from.cast::<[i32; LANES]>().read_unaligned() };
            integers.map(|integer| integer as f32)
        }
        fn inputs(from: *const u8) -> f32 { from.cast::<f32>().read_unaligned() }
        fn widen(from: *const i8, count: usize, room: *mut f32) -> *const f32 {
            for k in 0..count {
                unsafe { *room.add(k) = f32::from(*from.add(k)) };
            }
            room
        }
        fn weights(from: *const f32) -> [f32; LANES] { from.cast::<[f32; LANES]>().read_unaligned() }
        fn add(sums: [f32; LANES], inputs: f32, weights: [f32; LANES]) -> [f32; LANES] {
            Portable::mul_add([inputs; LANES], weights, sums)
        }
        fn to_f32(sums: [f32; LANES]) -> [f32; LANES] { sums }
        fn store(to: *mut u8, values: [f32; LANES]) { Portable::store(to.cast(), values) }
    }
}
