//! The instructions of AMX in plain Rust.

use std::cell::RefCell;

use super::{Operands, SIDE, STEP, TileUnit};
use crate::simd::Lanes;

/// Multiplies as the instructions do, to the bit. Holds the bits of a block's sums.
pub(crate) struct Emulator(RefCell<[u32; SIDE * SIDE]>);

/// Returns 0 for a value too small for a normal number: the instruction takes and gives no other ones.
fn flushed(value: f32) -> f32 {
    if value.is_subnormal() {
        0.0_f32.copysign(value)
    } else {
        value
    }
}

/// `a·b + c`, rounded once.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    flushed(a.mul_add(b, c))
}

/// A value of a row in tiles.
unsafe fn value_in_tiles(from: *const u16, at: usize) -> f32 {
    half::bf16::from_bits(unsafe { *from.add(at / SIDE * SIDE * SIDE + at % SIDE) }).to_f32()
}

/// The 32 bits at a place.
unsafe fn word(from: *const u8) -> u32 {
    unsafe { from.cast::<u32>().read_unaligned() }
}

impl TileUnit for Emulator {
    type F = Lanes<16>;

    fn start() -> Self {
        Self(RefCell::new([0; SIDE * SIDE]))
    }

    unsafe fn begin(&self, sums: Option<*const f32>) {
        *self.0.borrow_mut() = match sums {
            Some(sums) => unsafe { sums.cast::<[u32; SIDE * SIDE]>().read() },
            None => [0; SIDE * SIDE],
        };
    }

    unsafe fn end(&self, sums: *mut f32) {
        unsafe { sums.cast::<[u32; SIDE * SIDE]>().write(*self.0.borrow()) }
    }

    unsafe fn bf16(&self, operands: Operands) {
        let halves = |word: u32| {
            [word << 16, word & 0xffff_0000]
                .map(f32::from_bits)
                .map(flushed)
        };
        for place in 0..SIDE * SIDE {
            let (row, column) = (place / SIDE, place % SIDE);
            unsafe {
                let sum = &mut self.0.borrow_mut()[place];
                let mut total = f32::from_bits(*sum);
                for step in 0..operands.steps {
                    let left = operands.left.add(step * operands.left_step + row * STEP);
                    let right = operands
                        .right
                        .add(step * 16 * operands.right_row + column * 4);
                    // Two chains, one of the even and one of the odd places.
                    let mut chains = [0.0; 2];
                    for pair in 0..16 {
                        let a = halves(word(left.add(4 * pair)));
                        let b = halves(word(right.add(pair * operands.right_row)));
                        chains = [0, 1].map(|at| fused(a[at], b[at], chains[at]));
                    }
                    total = flushed(flushed(total) + flushed(chains[0] + chains[1]));
                }
                *sum = total.to_bits();
            }
        }
    }

    unsafe fn store_int8(to: *mut u8, values: [f32; 16]) {
        for (at, value) in values.into_iter().enumerate() {
            unsafe { *to.add(at) = (value as i8).cast_unsigned() }
        }
    }

    unsafe fn largest(from: *const u16, tiles: usize) -> f32 {
        let values = (0..tiles * SIDE).map(|at| unsafe { value_in_tiles(from, at) });
        values.map(f32::abs).max_by(f32::total_cmp).unwrap_or(0.0)
    }

    unsafe fn quantize(from: *const u16, tiles: usize, factor: f32, to: *mut u8) {
        for at in 0..tiles.next_multiple_of(2) * SIDE {
            unsafe {
                let value = if at < tiles * SIDE {
                    (value_in_tiles(from, at) * factor).round_ties_even()
                } else {
                    0.0
                };
                *to.add(at / STEP * SIDE * STEP + at % STEP) = (value as i8).cast_unsigned();
            }
        }
    }

    unsafe fn load_sums(from: *const i32) -> [f32; 16] {
        std::array::from_fn(|at| unsafe { *from.add(at) } as f32)
    }

    unsafe fn int8(&self, operands: Operands) {
        let bytes = |word: u32| word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        for place in 0..SIDE * SIDE {
            let (row, column) = (place / SIDE, place % SIDE);
            unsafe {
                let sum = &mut self.0.borrow_mut()[place];
                let mut total = sum.cast_signed();
                for step in 0..operands.steps {
                    let left = operands.left.add(step * operands.left_step + row * STEP);
                    let right = operands
                        .right
                        .add(step * 16 * operands.right_row + column * 4);
                    for four in 0..16 {
                        let a = bytes(word(left.add(4 * four)));
                        let b = bytes(word(right.add(four * operands.right_row)));
                        total += a.iter().zip(b).map(|(a, b)| a * b).sum::<i32>();
                    }
                }
                *sum = total.cast_unsigned();
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::{Amx, Block, is_available};
    use super::*;

    /// Random bytes: all bits of bfloat16, with infinity, NaN and values below normal ones, or those near 1.
    fn bytes(seed: u64, count: usize, near_one: bool) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u16
        };
        let halves = (0..count / 2).map(|_| match next() {
            bits if near_one => bits & 0x80ff | 0x3f00,
            bits => bits,
        });
        halves.flat_map(u16::to_le_bytes).collect()
    }

    /// Products of bfloat16 added to sums, and of integers.
    unsafe fn computed<U: TileUnit>(
        unit: &U,
        sums: Option<*const f32>,
        operands: Operands,
    ) -> ([[f32; SIDE]; SIDE], [[i32; SIDE]; SIDE]) {
        let (mut floats, mut integers) = ([[0.0; SIDE]; SIDE], [[0; SIDE]; SIDE]);
        unsafe {
            unit.begin(sums);
            unit.bf16(operands);
            unit.end(floats.as_mut_ptr().cast());
            unit.begin(None);
            unit.int8(operands);
            unit.end(integers.as_mut_ptr().cast());
        }
        (floats, integers)
    }

    #[test]
    fn the_instructions_compute_what_the_emulator_does_to_the_bit() {
        if !is_available() {
            eprintln!("skipped: this CPU has no AMX, or the system does not permit it");
            return;
        }
        let (unit, emulator) = (Amx::start(), Emulator::start());
        for round in 0..200u64 {
            let steps = 1 + round as usize % 5;
            let left = bytes(3 * round + 1, steps * 2048, round % 2 == 0);
            let right = bytes(3 * round + 2, steps * 2048, round % 2 == 0);
            let operands = Operands {
                left: left.as_ptr(),
                left_step: 2048,
                right: right.as_ptr(),
                right_row: 128,
                steps,
                ahead: right.as_ptr(),
                reuses_left: round / 2 % 2 == 0,
            };
            let sums = Block([[1.5f32; SIDE]; SIDE]);
            let sums = (round % 3 == 0).then_some(sums.0.as_flattened().as_ptr());
            // SAFETY: the operands have so many steps.
            let [found, expected] = unsafe {
                [
                    computed(&unit, sums, operands),
                    computed(&emulator, sums, operands),
                ]
            };
            assert_eq!(found.1.as_flattened(), expected.1.as_flattened());
            let [found, expected] = [&found.0, &expected.0].map(|floats| floats.as_flattened());
            for (found, expected) in found.iter().zip(expected) {
                let same = found.to_bits() == expected.to_bits();
                assert!(
                    same || found.is_nan() && expected.is_nan(),
                    "round {round}: {found:e}, expected {expected:e}"
                );
            }
        }
    }
}
