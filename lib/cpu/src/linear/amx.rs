//! Products of tiles: see [`TileUnit`].

use std::mem::MaybeUninit;
use std::ops::Range;

use super::VECTORS;
use super::product::{Finished, MOST_AMX_ROWS, Multiplier, Place, Sums};
use super::quantized::{self, GROUP, quantize, quantize_tiles};
use crate::Rows;
use crate::amx::{Block, HALVES, Operands, SIDE, STEP, TileUnit};
use crate::simd::Simd;

/// The bytes of a step of 32 rows, or of 32 columns.
const STEP_BYTES: usize = SIDE * STEP;
/// The most steps of a panel that stay in a first-level cache of 48 KiB while all rows use them.
const STEPS: usize = 20;
/// The blocks of rows that are loaded at once.
const BLOCKS: usize = MOST_AMX_ROWS / SIDE;

/// Memory for sums of a panel's earlier pieces, for each block of rows.
pub(super) type Earlier = [MaybeUninit<Block<f32>>; BLOCKS];
pub(super) const UNUSED: Earlier = [const { MaybeUninit::uninit() }; BLOCKS];

/// Divides a range into so many parts of nearly equal length.
fn shares(range: Range<usize>, count: usize) -> impl Iterator<Item = Range<usize>> {
    let edge = move |part: usize| range.start + range.len() * part / count;
    (0..count).map(move |part| edge(part)..edge(part + 1))
}

/// Divides steps into as few pieces as stay in a cache. Returns the earlier ones, and the last.
fn pieces(range: Range<usize>) -> (impl Iterator<Item = Range<usize>>, Range<usize>) {
    let count = range.len().div_ceil(STEPS);
    let last = range.start + range.len() * (count - 1) / count..range.end;
    (shares(range, count).take(count - 1), last)
}

/// Returns the operands of some steps of a block of rows and a panel, which have `steps` in all. `rows` and `panels` are the first of all.
fn operands(
    rows: *const u8,
    row: usize,
    panels: *const u8,
    panel: usize,
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
        // All rows use the right side again.
        reuses_left: false,
    }
}

/// Multiplies bfloat16 panels by rounded rows.
pub(super) struct Halves<U> {
    pub(super) unit: U,
    pub(super) panels: *const u16,
    /// `(rows/32, depth/32, 32, 32)`: memory for rows that are not in tiles.
    pub(super) converted: *mut u16,
    /// The loaded rows.
    pub(super) rows: *const u16,
    /// Inputs of a row, padded.
    pub(super) depth: usize,
    pub(super) earlier: *mut Earlier,
}

impl<U: TileUnit> Halves<U> {
    /// Adds products of some steps to a block of rows.
    #[inline(always)]
    unsafe fn multiply(&self, row: usize, panel: usize, steps: Range<usize>) {
        let (rows, panels) = (self.rows.cast(), self.panels.cast());
        let operands = operands(rows, row, panels, panel, self.depth / HALVES, steps);
        unsafe { self.unit.bf16(operands) }
    }
}

/// The steps of some inputs.
fn steps(inputs: Range<usize>) -> Range<usize> {
    inputs.start / HALVES..inputs.end.div_ceil(HALVES)
}

impl<U: TileUnit> Multiplier<U::F, SIDE> for Halves<U> {
    const BYTES: usize = size_of::<u16>();
    const LEAVES_VECTORS: bool = true;

    fn piece(&self, inputs: usize) -> usize {
        inputs.min(2560)
    }

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        if let Some(rows) = x.tiles_at(range.start) {
            self.rows = rows;
            return;
        }
        self.rows = self.converted;
        for (i, row) in range.enumerate() {
            let block = i / SIDE * SIDE * self.depth;
            unsafe {
                let (from, to) = (x.at(row), self.converted.add(block + i % SIDE * HALVES));
                for first in (0..self.depth).step_by(HALVES) {
                    let left = |at| x.width().saturating_sub(first + at);
                    let low = U::F::load_some(from.wrapping_add(first), left(0));
                    let high = U::F::load_some(from.wrapping_add(first + 16), left(16));
                    U::F::store_bf16_both(to.add(first * SIDE), low, high);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn load_panel(&mut self, panel: usize, rows: usize, inputs: Range<usize>) {
        let steps = steps(inputs);
        let (first, (earlier, _)) = (steps.start, pieces(steps));
        for piece in earlier {
            for row in (0..rows).step_by(SIDE) {
                let sums = self.earlier.cast::<f32>().wrapping_add(row * SIDE);
                unsafe {
                    self.unit
                        .begin((piece.start > first).then_some(sums.cast_const()));
                    self.multiply(row, panel, piece.clone());
                    self.unit.end(sums);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: *mut Sums<U::F, SIDE>, before: &Finished<'_, U::F>) {
        let steps = steps(place.inputs);
        let (first, (_, last)) = (steps.start, pieces(steps));
        let earlier = self.earlier.cast::<f32>().wrapping_add(place.row * SIDE);
        unsafe {
            self.unit
                .begin((last.start > first).then_some(earlier.cast_const()));
            for (rows, step) in shares(0..SIDE, last.len()).zip(last) {
                self.multiply(place.row, place.panel, step..step + 1);
                before.use_rows(rows);
            }
            self.unit.end(sums.cast());
        }
    }
}

/// Multiplies panels of 8-bit integers by rows of them.
pub(super) struct Bytes<'a, U> {
    pub(super) unit: U,
    pub(super) panels: &'a quantized::Panels,
    /// `(rows/32, depth/64, 32, 64)`
    pub(super) quantized: *mut u8,
    /// `(rows, groups)`
    pub(super) scales: *mut f32,
    pub(super) inputs: usize,
}

impl<U: TileUnit> Bytes<'_, U> {
    /// Adds the sums of a group, times their scales, to those of earlier groups. Stores them in `to`.
    #[inline(always)]
    unsafe fn scale(
        &self,
        integers: *const i32,
        row: usize,
        panel: usize,
        group: usize,
        earlier: *const Sums<U::F, SIDE>,
        to: *mut Sums<U::F, SIDE>,
    ) {
        let (groups, columns) = (self.inputs.div_ceil(GROUP), SIDE);
        unsafe {
            let weights = self.panels.scales().add((panel * groups + group) * columns);
            let weights = [U::F::load(weights), U::F::load(weights.add(U::F::LANES))];
            for i in 0..SIDE {
                let own = U::F::splat(*self.scales.add((row + i) * groups + group));
                let mut sums = [U::F::splat(0.0); VECTORS];
                if group > 0 {
                    sums = (*earlier)[i];
                }
                for (v, (sum, weights)) in sums.iter_mut().zip(weights).enumerate() {
                    let products = U::load_sums(integers.add(i * SIDE + v * U::F::LANES));
                    *sum = U::F::mul_add(products, U::F::mul(own, weights), *sum);
                }
                (*to)[i] = sums;
            }
        }
    }
}

impl<U: TileUnit> Multiplier<U::F, SIDE> for Bytes<'_, U> {
    const BYTES: usize = 1;
    const LEAVES_VECTORS: bool = true;

    #[inline(always)]
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>) {
        let (steps, groups) = (self.inputs.div_ceil(STEP), self.inputs.div_ceil(GROUP));
        let tiles = x.tiles_at(range.start);
        for (i, row) in range.enumerate() {
            unsafe {
                let to = self
                    .quantized
                    .add(i / SIDE * steps * STEP_BYTES + i % SIDE * STEP);
                for group in 0..groups {
                    let first = group * GROUP;
                    let count = GROUP.min(self.inputs - first);
                    let to = to.add(first / STEP * STEP_BYTES);
                    let scale = if let Some(tiles) = tiles {
                        let tile = i / SIDE * self.inputs.div_ceil(SIDE) + first / SIDE;
                        let from = tiles.add((tile * SIDE + i % SIDE) * SIDE);
                        quantize_tiles::<U>(from, count.div_ceil(SIDE), to)
                    } else {
                        let store = |at, values| {
                            U::store_int8(to.add(at / STEP * STEP_BYTES + at % STEP), values);
                        };
                        let whole = count.next_multiple_of(STEP);
                        quantize::<U::F>(x.at(row).add(first), count, whole, store)
                    };
                    *self.scales.add(i * groups + group) = scale;
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn tile(&self, place: Place, sums: *mut Sums<U::F, SIDE>, before: &Finished<'_, U::F>) {
        let Place { row, panel, .. } = place;
        let mut integers = MaybeUninit::<Block<i32>>::uninit();
        let integers: *mut i32 = integers.as_mut_ptr().cast();
        let mut earlier = MaybeUninit::<Sums<U::F, SIDE>>::uninit();
        let earlier = earlier.as_mut_ptr();
        let (groups, steps) = (self.inputs.div_ceil(GROUP), self.inputs.div_ceil(STEP));
        let (rows, panels) = (self.quantized.cast_const(), self.panels.weights().cast());
        unsafe {
            for (group, used) in shares(0..SIDE, groups).enumerate() {
                let part = group * GROUP / STEP..steps.min((group + 1) * GROUP / STEP);
                let operands = operands(rows, row, panels, panel, steps, part);
                self.unit.begin(None);
                self.unit.int8(operands);
                // Meanwhile, for other units.
                if let Some(group) = group.checked_sub(1) {
                    self.scale(integers, row, panel, group, earlier, earlier);
                }
                self.unit.end(integers.cast());
                before.use_rows(used);
            }
            self.scale(integers, row, panel, groups - 1, earlier, sums);
        }
    }
}

/// With the emulator of the instructions, so that packing and tails are tested on every CPU.
#[cfg(test)]
mod tests {
    use super::super::{Epilogue, Panels, Weights, product};
    use super::*;
    use crate::aligned::Aligned;
    use crate::amx::Emulator;
    use crate::linear::Converted;
    use crate::rows::room;
    use crate::{Dtype, Isa, LayerNorm, RowsMut};

    const SHAPES: [(usize, usize, usize); 5] = [
        (1, 1, 1),
        (33, 40, 70),
        (31, 96, 32),
        (70, 160, 33),
        // Added in pieces.
        (40, 2600, 32),
    ];

    fn numbers(seed: u32, count: usize) -> Vec<f32> {
        let spread = (1..=count as u32).map(|i| (i + seed).wrapping_mul(0x9e37_79b9) >> 8);
        spread
            .map(|spread| spread as f32 / (1 << 23) as f32 - 1.0)
            .collect()
    }

    /// The same as bfloat16 holds them.
    fn rounded(seed: u32, count: usize) -> Vec<f32> {
        let numbers = numbers(seed, count).into_iter();
        numbers
            .map(|value| half::bf16::from_f32(value).to_f32())
            .collect()
    }

    /// Weights whose panels are elsewhere.
    fn without_panels(inputs: usize, bias: &[f32]) -> Weights {
        let mut padded = bias.to_vec();
        padded.resize(bias.len().next_multiple_of(SIDE), 0.0);
        Weights {
            isa: Isa::Portable,
            inputs,
            outputs: bias.len(),
            panels: Panels::F32(Aligned::default()),
            bias: padded,
            gated: false,
        }
    }

    /// Multiplies panels of bfloat16 by rows.
    fn multiply_halves(
        panels: &[u16],
        bias: &[f32],
        x: Rows<'_>,
        out: &mut RowsMut<'_>,
        then: Epilogue<'_>,
    ) {
        let depth = x.width().next_multiple_of(HALVES);
        // Of an earlier use.
        let mut converted =
            vec![f32::NAN.to_bits() as u16; x.rows().next_multiple_of(SIDE) * depth];
        let mut earlier = UNUSED;
        let halves = Halves {
            unit: Emulator::start(),
            panels: panels.as_ptr(),
            converted: converted.as_mut_ptr(),
            rows: std::ptr::null(),
            depth,
            earlier: &raw mut earlier,
        };
        let weights = without_panels(x.width(), bias);
        unsafe { product::products(halves, &weights, x, out, then) }
    }

    /// Multiplies rows by the kernels of an instruction set, and adds them to ones.
    fn added_by(isa: Isa, dtype: Dtype, weight: &[f32], bias: &[f32], x: &[f32]) -> Vec<f32> {
        let weights = Weights::pack(isa, dtype, weight, bias).expect("memory");
        product_of(&weights, Rows::new(x, weights.inputs))
    }

    fn product_of(weights: &Weights, x: Rows<'_>) -> Vec<f32> {
        let mut converted = Converted::default();
        converted.grow(weights, x.rows()).expect("memory");
        let mut out = vec![1.0; x.rows() * weights.outputs];
        let into = &mut RowsMut::new(&mut out, weights.outputs);
        weights.apply(x, into, Epilogue::Add(0.5), Some(&mut converted));
        out
    }

    #[test]
    fn products_of_bfloat16() {
        for (rows, inputs, outputs) in SHAPES {
            let (x, weight) = (rounded(1, rows * inputs), rounded(2, outputs * inputs));
            let bias = numbers(3, outputs);
            let depth = inputs.next_multiple_of(HALVES);
            let mut panels = vec![0u16; outputs.next_multiple_of(SIDE) * depth];
            for (output, row) in weight.chunks(inputs).enumerate() {
                for (k, &value) in row.iter().enumerate() {
                    let pair = (output / SIDE * depth / 2 + k / 2) * SIDE + output % SIDE;
                    panels[2 * pair + k % 2] = half::bf16::from_f32(value).to_bits();
                }
            }
            let mut found = vec![1.0; rows * outputs];
            let out = &mut RowsMut::new(&mut found, outputs);
            let then = Epilogue::Add(0.5);
            multiply_halves(&panels, &bias, Rows::new(&x, inputs), out, then);
            for (row, found) in x.chunks(inputs).zip(found.chunks(outputs)) {
                for ((weight, &bias), &found) in weight.chunks(inputs).zip(&bias).zip(found) {
                    let products = row
                        .iter()
                        .zip(weight)
                        .map(|(&x, &w)| f64::from(x) * f64::from(w));
                    let expected = 1.0 + 0.5 * (products.sum::<f64>() + f64::from(bias));
                    let error = (f64::from(found) - expected).abs() / expected.abs().max(1.0);
                    assert!(error < 1e-6, "{inputs}: {found}, expected {expected}");
                }
            }
            if Isa::Amx.is_available() {
                assert!(found == added_by(Isa::Amx, Dtype::Bf16, &weight, &bias, &x));
            }
        }
    }

    /// Norms write tiles, products read them and write others: the same values as row by row, rounded.
    #[test]
    fn rows_in_tiles_hold_the_same_values() {
        let (rows, inputs, outputs) = (70, 40, 50);
        let norm = LayerNorm {
            weight: numbers(4, inputs),
            bias: numbers(5, inputs),
            eps: 1e-5,
        };
        let (x, bias) = (numbers(1, rows * inputs), numbers(3, outputs));
        let depth = inputs.next_multiple_of(HALVES);
        let panels = numbers(2, outputs.next_multiple_of(SIDE) * depth).into_iter();
        let panels: Vec<u16> = panels
            .map(|value| half::bf16::from_f32(value).to_bits())
            .collect();
        let multiply = |normed: Rows<'_>, out: &mut RowsMut<'_>, then| {
            multiply_halves(&panels, &bias, normed, out, then);
        };
        // An activation for rows that are rounded is as exact as they are.
        for (then, allowed) in [(Epilogue::Store, 0.0), (Epilogue::Gelu, 1e-4)] {
            let mut normed = vec![0.0; rows * inputs];
            let mut expected = vec![0.0; rows * outputs];
            let mut into = RowsMut::new(&mut normed, inputs);
            norm.apply(Isa::Portable, Rows::new(&x, inputs), &mut into);
            let out = &mut RowsMut::new(&mut expected, outputs);
            multiply(into.as_rows(), out, then);
            // Of an earlier use.
            let mut memory = [inputs, outputs].map(|width| vec![f32::NAN; room(rows, width)]);
            let [normed, found] = &mut memory;
            let mut into = RowsMut::tiles(normed, rows, inputs);
            norm.apply(Isa::Portable, Rows::new(&x, inputs), &mut into);
            let mut found = RowsMut::tiles(found, rows, outputs);
            multiply(into.as_rows(), &mut found, then);
            for (at, &expected) in expected.iter().enumerate() {
                let found = unsafe { *found.half(at / outputs, at % outputs) };
                let range = [expected - allowed, expected + allowed].map(half::bf16::from_f32);
                let found = half::bf16::from_bits(found);
                assert!(
                    range[0] <= found && found <= range[1],
                    "{at}: {found}, not {range:?}"
                );
            }
        }
    }

    #[test]
    fn products_of_integers_are_those_of_other_instructions_to_the_bit() {
        for (rows, inputs, outputs) in SHAPES {
            let (x, weight) = (numbers(1, rows * inputs), numbers(2, outputs * inputs));
            let bias = numbers(3, outputs);
            let padded = outputs.next_multiple_of(SIDE);
            let mut panels = quantized::Panels::zeros(Isa::Amx, padded, inputs).expect("memory");
            for (panel, mut buffer) in panels.buffers(Isa::Amx, inputs).enumerate() {
                for column in 0..SIDE.min(outputs - panel * SIDE) {
                    let row = &weight[(panel * SIDE + column) * inputs..][..inputs];
                    for (group, values) in row.chunks(GROUP).enumerate() {
                        let integers = buffer.quantize(group * SIDE + column, values);
                        for (at, &integer) in integers.iter().enumerate().take(values.len()) {
                            let k = group * GROUP + at;
                            buffer.weights[(k / 4 * SIDE + column) * 4 + k % 4] = integer;
                        }
                    }
                }
            }
            let depth = inputs.next_multiple_of(STEP);
            let multiply = |x: Rows<'_>| {
                let mut quantized = vec![77u8; room(rows, 1) / SIDE * depth];
                let mut scales = vec![f32::NAN; room(rows, 1) / SIDE * inputs.div_ceil(GROUP)];
                let bytes = Bytes {
                    unit: Emulator::start(),
                    panels: &panels,
                    quantized: quantized.as_mut_ptr(),
                    scales: scales.as_mut_ptr(),
                    inputs,
                };
                let mut out = vec![1.0; rows * outputs];
                let into = &mut RowsMut::new(&mut out, outputs);
                let weights = without_panels(inputs, &bias);
                unsafe { product::products(bytes, &weights, x, into, Epilogue::Add(0.5)) }
                out
            };
            let found = multiply(Rows::new(&x, inputs));
            assert!(found == added_by(Isa::Portable, Dtype::Int8, &weight, &bias, &x));
            // The same values in tiles.
            let x = rounded(1, rows * inputs);
            let mut memory = vec![f32::NAN; room(rows, inputs)];
            let tiles = RowsMut::tiles(&mut memory, rows, inputs);
            for (at, &value) in x.iter().enumerate() {
                let half = tiles.half(at / inputs, at % inputs);
                unsafe { *half = half::bf16::from_f32(value).to_bits() }
            }
            let found = multiply(tiles.as_rows());
            assert!(found == multiply(Rows::new(&x, inputs)));
            if Isa::Amx.is_available() {
                let [rows, expected] = [Isa::Amx, Isa::Avx512Vnni]
                    .map(|isa| added_by(isa, Dtype::Int8, &weight, &bias, &x));
                assert!(rows == expected);
                let weights = Weights::pack(Isa::Amx, Dtype::Int8, &weight, &bias).expect("memory");
                assert!(rows == product_of(&weights, tiles.as_rows()));
            }
        }
    }
}
