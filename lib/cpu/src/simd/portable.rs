//! Vectors of any number of lanes for any CPU, vectorised by the compiler.

use super::Simd;
use crate::simd::dispatch::operations;

/// Vectors of `N` lanes.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<const N: usize>;

/// For any CPU.
pub(crate) type Portable = Lanes<8>;
/// For the remainder of a row.
pub(crate) type Scalar = Lanes<1>;
/// For a remainder of pairs.
pub(crate) type Pair = Lanes<2>;

#[inline(always)]
fn each<const N: usize>(function: impl FnMut(usize) -> f32) -> [f32; N] {
    std::array::from_fn(function)
}

impl<const N: usize> Simd for Lanes<N> {
    type V = [f32; N];
    const LANES: usize = N;

    operations! {
        fn splat(value: f32) -> [f32; N] { [value; N] }
        fn load(from: *const f32) -> [f32; N] { from.cast::<[f32; N]>().read_unaligned() }
        fn store(to: *mut f32, v: [f32; N]) { to.cast::<[f32; N]>().write_unaligned(v) }
        fn load_some(from: *const f32, count: usize) -> [f32; N] {
            each(|i| if i < count { *from.add(i) } else { 0.0 })
        }
        fn store_some(to: *mut f32, count: usize, v: [f32; N]) {
            std::ptr::copy_nonoverlapping(v.as_ptr(), to, count.min(N))
        }
        fn columns(from: *const f32, stride: usize) -> [[f32; N]; 4] {
            std::array::from_fn(|column| each(|row| *from.add(row * stride + column)))
        }
        fn add(a: [f32; N], b: [f32; N]) -> [f32; N] { each(|i| a[i] + b[i]) }
        fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] { each(|i| a[i] - b[i]) }
        fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] { each(|i| a[i] * b[i]) }
        fn div(a: [f32; N], b: [f32; N]) -> [f32; N] { each(|i| a[i] / b[i]) }
        fn mul_add(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
            // Not `f32::mul_add` everywhere: without such an instruction it calls a function.
            if cfg!(target_arch = "aarch64") {
                each(|i| a[i].mul_add(b[i], c[i]))
            } else {
                each(|i| a[i] * b[i] + c[i])
            }
        }
        fn max(a: [f32; N], b: [f32; N]) -> [f32; N] { each(|i| if a[i] > b[i] { a[i] } else { b[i] }) }
        fn abs(v: [f32; N]) -> [f32; N] { each(|i| v[i].abs()) }
        fn copy_sign(magnitude: [f32; N], sign: [f32; N]) -> [f32; N] { each(|i| magnitude[i].copysign(sign[i])) }
        fn select_greater(a: [f32; N], b: [f32; N], yes: [f32; N], no: [f32; N]) -> [f32; N] {
            each(|i| if a[i] > b[i] { yes[i] } else { no[i] })
        }
        fn round(v: [f32; N]) -> [f32; N] {
            // Adding and subtracting 1.5·2^23 rounds values below 2^22 without a function call.
            const SHIFT: f32 = 12_582_912.0;
            each(|i| (v[i] + SHIFT) - SHIFT)
        }
        fn lookup(table: &[f32; 8], index: [f32; N]) -> [f32; N] { each(|i| table[index[i] as usize % 8]) }
        fn scale(v: [f32; N], n: [f32; N]) -> [f32; N] {
            each(|i| v[i] * f32::from_bits(((n[i] as i32 + 127) as u32) << 23))
        }
        fn swap_pairs(v: [f32; N]) -> [f32; N] { each(|i| v[(i ^ 1).min(N - 1)]) }
        fn sum(v: [f32; N]) -> f32 { v.iter().sum() }
        fn largest(v: [f32; N]) -> f32 { v.into_iter().fold(f32::NEG_INFINITY, f32::max) }
    }
}
