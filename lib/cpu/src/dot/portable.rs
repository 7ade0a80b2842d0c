//! Any CPU. Integers are f32, which old CPUs multiply faster. Below 2^24 that is exact.

use std::marker::PhantomData;

use super::Dot;
use crate::simd::Simd;
use crate::simd::dispatch::operations;

/// By the vectors of `S`.
pub(crate) struct PortableDot<S>(PhantomData<S>);

impl<S: Simd> Dot for PortableDot<S> {
    type F = S;
    type Sums = S::V;
    type Rows = [S::V; 1];
    type Inputs = f32;
    type Weights = S::V;
    type Weight = f32;

    const TOGETHER: usize = 1;
    const BYTES: usize = size_of::<f32>();

    operations! {
        fn load(from: *const i32) -> S::V {
            const { assert!(S::LANES == 8, "all vectors of f32 that multiply integers") };
            let integers = from.cast::<[i32; 8]>().read_unaligned();
            S::load(integers.map(|integer| integer as f32).as_ptr())
        }
        fn inputs(from: *const u8) -> f32 { from.cast::<f32>().read_unaligned() }
        fn widen(from: *const i8, count: usize, room: *mut f32) -> *const f32 {
            for k in 0..count {
                unsafe { *room.add(k) = f32::from(*from.add(k)) };
            }
            room
        }
        fn weights(from: *const f32) -> S::V { S::load(from) }
        fn add(sums: S::V, inputs: f32, weights: S::V) -> S::V {
            S::mul_add(S::splat(inputs), weights, sums)
        }
        fn to_f32(sums: S::V) -> [S::V; 1] { [sums] }
        fn store(to: *mut u8, values: S::V) { S::store(to.cast(), values) }
    }
}
