//! NEON with `FEAT_I8MM` and `FEAT_BF16`: products of matrices of 2 rows and 2 columns, by 8 integers or 4 bfloat16 of each.
//!
//! Source: Arm Architecture Reference Manual for A-profile, SMMLA and BFMMLA. BFMMLA adds products in pairs, rounds to odd, and
//! takes values too small for a normal number as zero.

use std::arch::aarch64::*;
use std::arch::asm;

use super::Dot;
use crate::simd::dispatch::operations;
use crate::simd::{Neon, Simd};

/// 2 rows by 2 columns of sums, or 8 bytes of 2 rows or columns.
type Block = uint64x2_t;
/// Sums of 8 columns of 6 rows: as many as the registers hold for two vectors of columns.
type Sums = [[Block; 3]; 4];

// The compiler has no stable intrinsics for these instructions. It is told of the extension here, so that callers need not be compiled
// for it.
macro_rules! matrix_products {
    (
        $(#[$doc:meta])* $name:ident, $weight:ty, $extension:literal, $instruction:literal,
        $to_f32:expr, $store:expr
    ) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl Dot for $name {
            type F = Neon;
            type Sums = Sums;
            type Rows = [[float32x4_t; 2]; 6];
            type Inputs = [Block; 3];
            type Weights = *const Block;
            type Weight = $weight;

            const ROWS: usize = 6;
            const TOGETHER: usize = 8 / size_of::<$weight>();
            const BYTES: usize = size_of::<$weight>();

            operations! {
                fn load(_from: *const i32) -> Sums { [[vdupq_n_u64(0); 3]; 4] }
                fn inputs(from: *const u8) -> [Block; 3] { from.cast::<[Block; 3]>().read_unaligned() }
                // Loaded where they are multiplied: there are no registers for all of them.
                fn weights(from: *const $weight) -> *const Block { from.cast() }
                fn add(sums: Sums, inputs: [Block; 3], weights: *const Block) -> Sums {
                    let mut sums = sums;
                    for (column, sums) in sums.iter_mut().enumerate() {
                        let weights = weights.add(column).read_unaligned();
                        for (sums, inputs) in sums.iter_mut().zip(inputs) {
                            asm!(
                                concat!(".arch_extension ", $extension),
                                $instruction,
                                sums = inout(vreg) *sums, inputs = in(vreg) inputs, weights = in(vreg) weights,
                                options(pure, nomem, nostack, preserves_flags)
                            );
                        }
                    }
                    sums
                }
                fn to_f32(sums: Sums) -> [[float32x4_t; 2]; 6] {
                    let ([a, b, c, d], to_f32) = (sums, $to_f32);
                    let even = |at: usize| [to_f32(vtrn1q_u64(a[at], b[at])), to_f32(vtrn1q_u64(c[at], d[at]))];
                    let odd = |at: usize| [to_f32(vtrn2q_u64(a[at], b[at])), to_f32(vtrn2q_u64(c[at], d[at]))];
                    [even(0), odd(0), even(1), odd(1), even(2), odd(2)]
                }
                fn store(to: *mut u8, values: [float32x4_t; 2]) { $store(to, values) }
            }
        }
    };
}

matrix_products!(
    /// 8-bit integers.
    Smmla, i8, "i8mm", "smmla {sums:v}.4s, {inputs:v}.16b, {weights:v}.16b",
    |sums| vcvtq_f32_s32(vreinterpretq_s32_u64(sums)),
    |to: *mut u8, values: [float32x4_t; 2]| {
        let [low, high] = values.map(|values| vmovn_s32(vcvtq_s32_f32(values)));
        vst1_s8(to.cast(), vmovn_s16(vcombine_s16(low, high)));
    }
);

matrix_products!(
    /// bfloat16.
    Bfmmla, u16, "bf16", "bfmmla {sums:v}.4s, {inputs:v}.8h, {weights:v}.8h",
    |sums| vreinterpretq_f32_u64(sums),
    |to: *mut u8, values: [float32x4_t; 2]| {
        let mut halves = [0; 8];
        Neon::store_bf16(halves.as_mut_ptr(), values);
        let halves = vld1q_u16(halves.as_ptr());
        vst1_u16(to.cast(), vget_low_u16(halves));
        vst1_u16(to.add(8 * Bfmmla::ROWS).cast(), vget_high_u16(halves));
    }
);
