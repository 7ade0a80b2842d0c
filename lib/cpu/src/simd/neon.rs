//! NEON, which every CPU of aarch64 has: 8 lanes in two registers.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Portable, Simd};
use crate::simd::dispatch::operations;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

type Two = [float32x4_t; 2];

/// Transposes four rows of four values.
#[inline(always)]
unsafe fn transpose(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let [a, b, c, d] = rows;
    unsafe {
        let even = [vtrn1q_f32(a, b), vtrn1q_f32(c, d)].map(|v| vreinterpretq_f64_f32(v));
        let odd = [vtrn2q_f32(a, b), vtrn2q_f32(c, d)].map(|v| vreinterpretq_f64_f32(v));
        [
            vtrn1q_f64(even[0], even[1]),
            vtrn1q_f64(odd[0], odd[1]),
            vtrn2q_f64(even[0], even[1]),
            vtrn2q_f64(odd[0], odd[1]),
        ]
        .map(|v| vreinterpretq_f32_f64(v))
    }
}

#[inline(always)]
unsafe fn greater(
    a: float32x4_t,
    b: float32x4_t,
    yes: float32x4_t,
    no: float32x4_t,
) -> float32x4_t {
    unsafe { vbslq_f32(vcgtq_f32(a, b), yes, no) }
}

impl Simd for Neon {
    type V = Two;
    const LANES: usize = 8;

    operations! {
        fn splat(value: f32) -> Two { [vdupq_n_f32(value); 2] }
        fn load(from: *const f32) -> Two { [vld1q_f32(from), vld1q_f32(from.add(4))] }
        fn store(to: *mut f32, v: Two) {
            vst1q_f32(to, v[0]);
            vst1q_f32(to.add(4), v[1]);
        }
        // Only with FEAT_BF16: its intrinsics are not stable.
        fn store_bf16(to: *mut u16, v: Two) {
            let halves: uint16x8_t;
            asm!(
                ".arch_extension bf16",
                "bfcvtn {halves:v}.4h, {low:v}.4s", "bfcvtn2 {halves:v}.8h, {high:v}.4s",
                halves = out(vreg) halves, low = in(vreg) v[0], high = in(vreg) v[1],
                options(pure, nomem, nostack, preserves_flags)
            );
            vst1q_u16(to, halves);
        }
        fn load_some(from: *const f32, count: usize) -> Two {
            if count >= 8 {
                Self::load(from)
            } else {
                Self::load(Portable::load_some(from, count).as_ptr())
            }
        }
        fn store_some(to: *mut f32, count: usize, v: Two) {
            if count >= 8 {
                Self::store(to, v);
            } else {
                let mut values = [0.0; 8];
                Self::store(values.as_mut_ptr(), v);
                Portable::store_some(to, count, values);
            }
        }
        fn columns(from: *const f32, stride: usize) -> [Two; 4] {
            let row = |row: usize| vld1q_f32(from.add(row * stride));
            let low = transpose([row(0), row(1), row(2), row(3)]);
            let high = transpose([row(4), row(5), row(6), row(7)]);
            std::array::from_fn(|column| [low[column], high[column]])
        }
        fn add(a: Two, b: Two) -> Two { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
        fn sub(a: Two, b: Two) -> Two { [vsubq_f32(a[0], b[0]), vsubq_f32(a[1], b[1])] }
        fn mul(a: Two, b: Two) -> Two { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
        fn div(a: Two, b: Two) -> Two { [vdivq_f32(a[0], b[0]), vdivq_f32(a[1], b[1])] }
        fn mul_add(a: Two, b: Two, c: Two) -> Two {
            [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])]
        }
        // Not the instruction for it, which returns NaN if either is.
        fn max(a: Two, b: Two) -> Two { Self::select_greater(a, b, a, b) }
        fn abs(v: Two) -> Two { v.map(|v| vabsq_f32(v)) }
        fn copy_sign(magnitude: Two, sign: Two) -> Two {
            let mask = vdupq_n_u32(1 << 31);
            [vbslq_f32(mask, sign[0], magnitude[0]), vbslq_f32(mask, sign[1], magnitude[1])]
        }
        fn select_greater(a: Two, b: Two, yes: Two, no: Two) -> Two {
            [greater(a[0], b[0], yes[0], no[0]), greater(a[1], b[1], yes[1], no[1])]
        }
        fn round(v: Two) -> Two { v.map(|v| vrndnq_f32(v)) }
        fn lookup(table: &[f32; 8], index: Two) -> Two {
            // By the four bytes of each value.
            let table = vld1q_u8_x2(table.as_ptr().cast());
            let (first, step) = (vdupq_n_u32(0x0302_0100), vdupq_n_u32(0x0404_0404));
            index.map(|index| {
                let bytes = vmlaq_u32(first, vcvtq_u32_f32(index), step);
                vreinterpretq_f32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(bytes)))
            })
        }
        fn scale(v: Two, n: Two) -> Two {
            let scaled = |v, n| {
                let exponents = vshlq_n_s32::<23>(vcvtq_s32_f32(n));
                vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(v), exponents))
            };
            [scaled(v[0], n[0]), scaled(v[1], n[1])]
        }
        fn swap_pairs(v: Two) -> Two { v.map(|v| vrev64q_f32(v)) }
        fn sum(v: Two) -> f32 { vaddvq_f32(vaddq_f32(v[0], v[1])) }
        fn largest(v: Two) -> f32 { vmaxnmvq_f32(vmaxnmq_f32(v[0], v[1])) }
    }
}
