//! Products of tiles: see [`TileUnit`].

use std::mem::MaybeUninit;
use std::ops::Range;

use super::VECTORS;
use super::int8::{self, GROUP};
use super::product::{Multiplier, Sums};
use crate::Rows;
use crate::amx::{Block, Operands, SIDE, STEP, TileUnit};
use crate::simd::Simd;

/// The bytes of a step of 32 rows, or of 32 columns.
const STEP_BYTES: usize = SIDE * STEP;
/// The values of bfloat16 in a step.
const HALVES: usize = STEP / size_of::<u16>();

/// Returns the operands of some steps of a block of rows and a panel, which have `steps` in all. `rows` and `panels` are the first of all.
fn operands(
    (rows, row): (*const u8, usize),
    (panels, panel): (*const u8, usize),
    steps: usize,
    range: Range<usize>,
) -> Operands {
    let (bytes, begin, block) = (steps * STEP_BYTES, range.start * STEP_BYTES, row / SIDE);
    let right = panels.wrapping_add(panel * bytes + begin);
    Operands {
        left: rows.wrapping_add(block * bytes + begin),
        left_step: STEP_BYTES,
        right,
        right_row: 2 * STEP,
        steps: range.len(),
        // Each block of rows prefetches another share of the next panel.
        ahead: right.wrapping_add(bytes + block * range.len() * 512),
    }
}

/// Multiplies bfloat16 panels by rounded rows.
pub(super) struct Halves<U> {
    pub(super) unit: U,
    pub(super) panels: *const u16,
    /// `(rows/32, depth/32, 32, 32)`
    pub(super) converted: *mut u16,
    /// Inputs of a row, padded.
    pub(super) depth: usize,
}

impl<U: TileUnit> Multiplier<U::F, SIDE> for Halves<U> {
    const BYTES: usize = size_of::<u16>();
    const PIECE: usize = 2560;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        for (i, row) in range.enumerate() {
            let block = i / SIDE * SIDE * self.depth;
            unsafe {
                let (from, to) = (x.at(row), self.converted.add(block + i % SIDE * HALVES));
                for first in (0..self.depth).step_by(HALVES) {
                    let left = |at| x.width().saturating_sub(first + at);
                    let low = U::F::load_some(from.wrapping_add(first), left(0));
                    let high = U::F::load_some(from.wrapping_add(first + 16), left(16));
                    U::store_bf16(to.add(first * SIDE), low, high);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(
        &self,
        row: usize,
        _rows: usize,
        panel: usize,
        inputs: Range<usize>,
        sums: &mut Sums<U::F, SIDE>,
    ) {
        // Sums of rows beyond the last are not used. There is memory for a whole tile.
        let steps = inputs.start / HALVES..inputs.end.div_ceil(HALVES);
        let (rows, panels) = (self.converted.cast_const().cast(), self.panels.cast());
        let operands = operands((rows, row), (panels, panel), self.depth / HALVES, steps);
        unsafe { self.unit.bf16(sums.as_mut_ptr().cast(), false, operands) }
    }
}

/// Multiplies panels of 8-bit integers by rows of them.
pub(super) struct Bytes<'a, U> {
    pub(super) unit: U,
    pub(super) panels: &'a int8::Panels,
    /// `(rows/32, depth/64, 32, 64)`
    pub(super) quantized: *mut u8,
    /// `(rows, groups)`
    pub(super) scales: *mut f32,
    pub(super) inputs: usize,
}

impl<U: TileUnit> Multiplier<U::F, SIDE> for Bytes<'_, U> {
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        let (depth, groups) = (
            self.inputs.next_multiple_of(STEP),
            self.inputs.div_ceil(GROUP),
        );
        for (i, row) in range.enumerate() {
            unsafe {
                let to = self
                    .quantized
                    .add(i / SIDE * SIDE * depth + i % SIDE * STEP);
                for group in 0..groups {
                    let first = group * GROUP;
                    let count = GROUP.min(self.inputs - first);
                    let store = |at, values| {
                        let at = first + at;
                        U::store_int8(to.add(at / STEP * STEP_BYTES + at % STEP), values);
                    };
                    let whole = count.next_multiple_of(STEP);
                    let scale = int8::quantize::<U::F>(x.at(row).add(first), count, whole, store);
                    *self.scales.add(i * groups + group) = scale;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(
        &self,
        row: usize,
        _rows: usize,
        panel: usize,
        _inputs: Range<usize>,
        sums: &mut Sums<U::F, SIDE>,
    ) {
        let (groups, columns) = (self.inputs.div_ceil(GROUP), SIDE);
        let steps = self.inputs.div_ceil(STEP);
        *sums = [[unsafe { U::F::splat(0.0) }; VECTORS]; SIDE];
        let mut integers = MaybeUninit::<Block<i32>>::uninit();
        let integers: *mut i32 = integers.as_mut_ptr().cast();
        for group in 0..groups {
            let range = group * GROUP / STEP..steps.min((group + 1) * GROUP / STEP);
            let (rows, panels) = (self.quantized.cast_const(), self.panels.weights().cast());
            let operands = operands((rows, row), (panels, panel), steps, range);
            unsafe {
                self.unit.int8(integers, operands);
                let weights = self.panels.scales().add((panel * groups + group) * columns);
                let weights = [U::F::load(weights), U::F::load(weights.add(U::F::LANES))];
                for (i, sums) in sums.iter_mut().enumerate() {
                    let own = U::F::splat(*self.scales.add((row + i) * groups + group));
                    for (v, (sum, weights)) in sums.iter_mut().zip(weights).enumerate() {
                        let products = U::load_sums(integers.add(i * SIDE + v * U::F::LANES));
                        *sum = U::F::mul_add(products, U::F::mul(own, weights), *sum);
                    }
                }
            }
        }
    }
}
