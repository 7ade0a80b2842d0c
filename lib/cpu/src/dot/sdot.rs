//! NEON with `FEAT_DotProd`: dot products of four 8-bit integers.

use std::arch::aarch64::*;
use std::arch::asm;

use super::Dot;
use crate::simd::Neon;
use crate::simd::dispatch::operations;

pub(crate) struct Sdot;

impl Dot for Sdot {
    type F = Neon;
    type Sums = [int32x4_t; 2];
    type Rows = [[float32x4_t; 2]; 1];
    type Inputs = int8x16_t;
    type Weights = [int8x16_t; 2];
    type Weight = i8;

    const TOGETHER: usize = 4;
    const BYTES: usize = 1;

    operations! {
        fn load(from: *const i32) -> [int32x4_t; 2] { [vld1q_s32(from), vld1q_s32(from.add(4))] }
        fn inputs(from: *const u8) -> int8x16_t { vreinterpretq_s8_s32(vld1q_dup_s32(from.cast())) }
        fn weights(from: *const i8) -> [int8x16_t; 2] { [vld1q_s8(from), vld1q_s8(from.add(16))] }
        fn add(sums: [int32x4_t; 2], inputs: int8x16_t, weights: [int8x16_t; 2]) -> [int32x4_t; 2] {
            let mut sums = sums;
            for (sums, weights) in sums.iter_mut().zip(weights) {
                // Its intrinsic is not stable, and callers need not be compiled for it.
                asm!(
                    ".arch_extension dotprod",
                    "sdot {sums:v}.4s, {inputs:v}.16b, {weights:v}.16b",
                    sums = inout(vreg) *sums, inputs = in(vreg) inputs, weights = in(vreg) weights,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sums
        }
        fn to_f32(sums: [int32x4_t; 2]) -> [[float32x4_t; 2]; 1] { [sums.map(|sums| vcvtq_f32_s32(sums))] }
        fn store(to: *mut u8, values: [float32x4_t; 2]) {
            let [low, high] = values.map(|values| vmovn_s32(vcvtq_s32_f32(values)));
            vst1_s8(to.cast(), vmovn_s16(vcombine_s16(low, high)));
        }
    }
}
