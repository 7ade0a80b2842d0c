//! Attention in bfloat16 by products of tiles: 32 queries at once.

use std::ops::Range;

use super::packed::{NONE, add_floor, pack_keys};
use super::{Scratch, Task};
use crate::amx::{HALVES, Operands, SIDE, STEP, TileUnit};
use crate::power_table::TO_DIGITS;
use crate::simd::Simd;
use crate::{Rows, RowsMut};

/// The keys of a block: three blocks of scores with 32 queries fill half of a first-level cache.
const KEYS: usize = 64;
/// The sums of a block of rows and columns.
const SUMS: usize = SIDE * SIDE;

/// Sums of weights from which nothing is missing that fits into the type: without the largest score, far from the ends of f32.
const SUMS_THAT_FIT: Range<f32> = 1.0 / (1u128 << 96) as f32..(1u128 << 96) as f32;
/// The least exponent of a weight.
const LEAST: f32 = -126.0;

/// Returns the values of f32 for three blocks of scores, and mixes.
pub(super) const fn room(dim: usize) -> usize {
    3 * SIDE * KEYS + SIDE * dim.next_multiple_of(SIDE)
}

/// What attention reads of a head.
const QUERY: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;

/// Packed keys and values, and memory for 32 queries.
struct Head<'a, U> {
    unit: U,
    /// Columns of the head begin with a tile.
    qkv: Rows<'a>,
    number: usize,
    dim: usize,
    /// The channels, padded to whole tiles.
    wide: usize,
    /// `(wide/32, length/32, 16, 32)`: pairs of channels
    keys: *mut f32,
    /// `(length/2, wide, 2)`
    values: *mut u16,
    /// `(3, KEYS/32, 32, 32)`: scores, which weights of bfloat16 replace.
    scores: *mut f32,
    /// `(wide/32, 32, 32)`
    mixed: *mut f32,
}

/// Up to 32 queries and a block of keys.
#[derive(Clone, Copy)]
struct Block {
    first: usize,
    count: usize,
    /// The first key.
    key: usize,
    /// Each of 32 keys.
    panels: usize,
    /// Whether no keys follow.
    ends: bool,
    scores: *mut f32,
}

impl Block {
    /// Replaces the scores of a row by softmax weights. Adds their sum to the first vector, and bits of those that do not fit to the second.
    #[inline(always)]
    unsafe fn soften<S: Simd>(&self, row: usize, mut sums: [S::V; 2]) -> [S::V; 2] {
        unsafe {
            let shift = S::splat(TO_DIGITS);
            for panel in 0..self.panels {
                let scores = self.scores.add(panel * SUMS);
                let x = [0, 16].map(|at| S::add(S::load(scores.add(row * SIDE + at)), shift));
                // A row of weights takes half of the memory: that of scores that are done.
                sums = S::store_powers(scores.cast::<u16>().add(row * HALVES), x, sums);
            }
        }
        sums
    }

    /// Makes scores relative to one for each row, and raises the least.
    #[inline(always)]
    unsafe fn lower<S: Simd>(&self, by: &[f32; SIDE]) {
        for (row, &by) in by.iter().enumerate().take(self.count) {
            for panel in 0..self.panels {
                for at in [0, 16] {
                    unsafe {
                        let score = self.scores.add(panel * SUMS + row * SIDE + at);
                        let lower = S::sub(S::load(score), S::splat(by));
                        // `max` returns its second argument if one is NaN, so that NaN stays NaN.
                        S::store(score, S::max(S::splat(LEAST), lower));
                    }
                }
            }
        }
    }

    /// Raises a score for each row to the largest; to NaN, if one is not finite.
    #[inline(always)]
    unsafe fn raise<S: Simd>(&self, largest: &mut [f32; SIDE], excluded: impl FnOnce()) {
        let vectors = |row: usize| {
            let scores = self.scores.wrapping_add(row * SIDE);
            (0..2 * self.panels).map(move |v| scores.wrapping_add(v / 2 * SUMS + v % 2 * 16))
        };
        unsafe {
            for (row, largest) in largest.iter_mut().enumerate().take(self.count) {
                let zeros = vectors(row).fold(S::splat(0.0), |zeros, scores| {
                    S::mul_add(S::load(scores), S::splat(0.0), zeros)
                });
                *largest += S::sum(zeros);
            }
            excluded();
            for (row, largest) in largest.iter_mut().enumerate().take(self.count) {
                let most =
                    vectors(row).fold(S::splat(NONE), |most, scores| S::max(most, S::load(scores)));
                if S::largest(most) > *largest {
                    *largest = S::largest(most);
                }
            }
        }
    }
}

/// Up to 32 queries, some of whose rows have weights that do not fit into bfloat16.
struct Lost {
    queries: Range<usize>,
    /// A bit each.
    rows: u32,
}

/// See [`attention`](super::attention).
#[inline(always)]
pub(super) unsafe fn attend<U: TileUnit>(
    task: &Task<'_>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let (qkv, dim) = (task.qkv, task.head.dim);
    let wide = dim.next_multiple_of(SIDE);
    let scores = scratch.block.as_mut_ptr();
    let head = Head {
        unit: U::start(),
        qkv,
        number: task.head.number,
        dim,
        wide,
        keys: scratch.keys.as_mut_ptr(),
        values: scratch.values.as_mut_ptr().cast(),
        scores,
        mixed: scores.wrapping_add(3 * SIDE * KEYS),
    };
    unsafe {
        head.pack();
        for lost in head.mix(&task.queries, None, out, 0) {
            let to = lost.queries.start - task.queries.start;
            let again = (lost.rows, head.largest(&lost.queries));
            head.mix(&lost.queries, Some(again), out, to);
        }
    }
}

impl<U: TileUnit> Head<'_, U> {
    /// Returns 32 channels of the first row, and the values to the next 32. Rows are 32 values apart.
    #[inline(always)]
    fn strip(&self, of: usize, channel: usize) -> (*const u16, usize) {
        let all = self.qkv.width() / 3;
        self.qkv.strip(of * all + self.number * self.wide + channel)
    }

    /// Packs keys and values; those past the end are zero.
    #[inline(always)]
    unsafe fn pack(&self) {
        const ZEROS: [u16; HALVES] = [0; HALVES];
        let there = self.qkv.rows();
        let length = there.next_multiple_of(SIDE);
        for channel in (0..self.wide).step_by(SIDE) {
            let [keys, values] = [KEY, VALUE].map(|of| {
                let first = self.strip(of, channel).0;
                move |row| {
                    if row < there {
                        first.wrapping_add(row * HALVES)
                    } else {
                        ZEROS.as_ptr()
                    }
                }
            });
            unsafe {
                let panels = self.keys.add(channel * length / 2);
                pack_keys::<U::F>(
                    panels,
                    HALVES / 2,
                    self.scores,
                    HALVES / 2,
                    length,
                    |row, to| {
                        U::F::store(to, U::F::load(keys(row).cast()));
                    },
                );
                // The weights of two such keys are a pair.
                for row in (0..length).filter(|row| row % SIDE < 16) {
                    let pair = row / SIDE * 16 + row % SIDE;
                    let to = self.values.add(2 * (pair * self.wide + channel));
                    U::F::interleave(to, [values(row), values(row + 16)]);
                }
            }
        }
    }

    /// Computes the mixes of queries and writes them to the rows of `out` from `to`. Weights are powers of the scores as they are, which
    /// nearly always fit. Rows with others are returned, to be computed `again`: some of up to 32, relative to the largest score of each.
    ///
    /// While the weights of a block are computed, other units multiply: scores of the next block, and values by the weights of the block
    /// before.
    #[inline(always)]
    unsafe fn mix(
        &self,
        queries: &Range<usize>,
        again: Option<(u32, [f32; SIDE])>,
        out: &mut RowsMut<'_>,
        to: usize,
    ) -> Vec<Lost> {
        let blocks = self.qkv.rows().div_ceil(KEYS);
        let count = queries.len().div_ceil(SIDE) * blocks;
        let (rows, largest) = again.unwrap_or((u32::MAX, [0.0; SIDE]));
        let (mut shares, mut all_lost) = ([0.0; SIDE], Vec::new());
        unsafe {
            let mut sums = [[U::F::splat(0.0); 2]; SIDE];
            let mut block = self.block(queries, 0, blocks);
            let mut before = Block {
                panels: 0,
                ends: false,
                ..block
            };
            self.take_all(&before, &block);
            for turn in 1..=count {
                let mut next = self.block(queries, turn, blocks);
                if turn == count {
                    next.panels = 0;
                }
                if block.ends {
                    self.exclude(&block);
                }
                if block.ends || again.is_some() {
                    block.lower::<U::F>(&largest);
                }
                if block.key == 0 {
                    sums = [[U::F::splat(0.0); 2]; SIDE];
                }
                let turns = 2 * self.steps(&before, &next);
                let (mut taken, mut finished) = (0, None);
                for (row, sums) in sums.iter_mut().enumerate() {
                    if row < block.count {
                        *sums = block.soften::<U::F>(row, *sums);
                    }
                    while taken * SIDE < turns * (row + 1) {
                        // A store waits for its products, and the next products for it: some rows apart, neither waits.
                        if taken % 2 == 0 {
                            finished = self.step(&before, &next, taken / 2);
                        } else {
                            self.finish(finished.take());
                        }
                        taken += 1;
                    }
                }
                if before.ends {
                    let to = to + before.first - queries.start;
                    self.store(&before, rows, &shares, out, to);
                }
                if block.ends {
                    let mut lost = 0;
                    for row in 0..block.count {
                        let [sum, odd] = sums[row];
                        let sum = U::F::sum(sum);
                        let fits = SUMS_THAT_FIT.contains(&sum) && U::F::fitted(odd);
                        lost |= u32::from(!fits) << row;
                        // NaN if the largest score is not finite.
                        shares[row] = 1.0 / sum + largest[row] * 0.0;
                    }
                    if lost > 0 {
                        let queries = block.first..block.first + block.count;
                        let rows = lost;
                        all_lost.push(Lost { queries, rows });
                    }
                }
                (before, block) = (block, next);
            }
            self.take_all(&before, &block);
            let to = to + before.first - queries.start;
            self.store(&before, rows, &shares, out, to);
        }
        all_lost
    }

    /// Returns the largest score of each of up to 32 queries; NaN if one is not finite.
    #[inline(always)]
    unsafe fn largest(&self, queries: &Range<usize>) -> [f32; SIDE] {
        let mut largest = [NONE; SIDE];
        let blocks = self.qkv.rows().div_ceil(KEYS);
        for number in 0..blocks {
            let block = self.block(queries, number, blocks);
            unsafe {
                self.take_all(&Block { panels: 0, ..block }, &block);
                block.raise::<U::F>(&mut largest, || {
                    if block.ends {
                        self.exclude(&block);
                    }
                });
            }
        }
        largest
    }

    /// Returns a block of queries and keys; all keys of the same queries follow each other, in so many blocks.
    #[inline(always)]
    fn block(&self, queries: &Range<usize>, number: usize, blocks: usize) -> Block {
        let first = queries.start + number / blocks * SIDE;
        let key = number % blocks * KEYS;
        Block {
            first,
            count: SIDE.min(queries.end.saturating_sub(first)),
            key,
            panels: KEYS.min(self.qkv.rows() - key).div_ceil(SIDE),
            ends: key + KEYS >= self.qkv.rows(),
            scores: self.scores.wrapping_add(number % 3 * SIDE * KEYS),
        }
    }

    /// Returns the steps of products that compute the scores of a block and add the values of another one.
    #[inline(always)]
    fn steps(&self, values: &Block, scores: &Block) -> usize {
        (values.panels + scores.panels) * (self.wide / HALVES)
    }

    /// Takes one of the [steps](Self::steps). Returns where its sums are to be stored, if they are finished.
    #[inline(always)]
    unsafe fn step(&self, values: &Block, scores: &Block, step: usize) -> Option<*mut f32> {
        let strips = self.wide / HALVES;
        let mut operands = Operands {
            left: values.scores.cast_const().cast(),
            left_step: 0,
            right: self.values.cast_const().cast(),
            right_row: 4 * self.wide,
            steps: 1,
            ahead: self.scores.cast_const().cast(),
            reuses_left: true,
        };
        let (begins, ends, earlier, to);
        if let Some(step) = step.checked_sub(scores.panels * strips) {
            let (strip, panel) = (step / values.panels, step % values.panels);
            let row = values.key + panel * SIDE;
            operands.left = operands.left.wrapping_add(panel * SUMS * size_of::<f32>());
            operands.right = operands
                .right
                .wrapping_add(2 * row * self.wide + 2 * strip * STEP);
            to = self.mixed.wrapping_add(strip * SUMS);
            (begins, ends) = (panel == 0, panel + 1 == values.panels);
            earlier = (values.key > 0).then_some(to.cast_const());
        } else {
            let (panel, strip) = (step / strips, step % strips);
            let (queries, apart) = self.strip(QUERY, 0);
            let queries = queries.wrapping_add(strip * apart + scores.first * HALVES);
            let key = strip * self.qkv.rows().next_multiple_of(SIDE) + scores.key + panel * SIDE;
            operands.left = queries.cast();
            operands.right = self.keys.wrapping_add(key * HALVES / 2).cast();
            operands.right_row = 2 * STEP;
            to = scores.scores.wrapping_add(panel * SUMS);
            (begins, ends) = (strip == 0, strip + 1 == strips);
            earlier = None;
        }
        unsafe {
            if begins {
                self.unit.begin(earlier);
            }
            self.unit.bf16(operands);
        }
        ends.then_some(to)
    }

    /// Stores finished sums.
    #[inline(always)]
    unsafe fn finish(&self, to: Option<*mut f32>) {
        if let Some(to) = to {
            unsafe { self.unit.end(to) }
        }
    }

    /// Takes all [steps](Self::steps).
    #[inline(always)]
    unsafe fn take_all(&self, values: &Block, scores: &Block) {
        for step in 0..self.steps(values, scores) {
            unsafe {
                let finished = self.step(values, scores, step);
                self.finish(finished);
            }
        }
    }

    /// Excludes keys past the end.
    #[inline(always)]
    unsafe fn exclude(&self, block: &Block) {
        let there = self.qkv.rows() - block.key;
        if there < block.panels * SIDE {
            unsafe {
                let last = block.scores.add((block.panels - 1) * SUMS);
                add_floor::<U::F>(last, block.count, there % SIDE);
            }
        }
    }

    /// Stores mixes, times the shares of their weights, to some of the rows from `to`.
    #[inline(always)]
    unsafe fn store(
        &self,
        block: &Block,
        rows: u32,
        shares: &[f32; SIDE],
        out: &mut RowsMut<'_>,
        to: usize,
    ) {
        unsafe {
            let shares = shares.iter().enumerate().take(block.count);
            for (row, &share) in shares.filter(|(row, _)| rows >> row & 1 > 0) {
                let share = U::F::splat(share);
                let to = to + row;
                for at in (0..self.dim).step_by(16) {
                    let mixed = self.mixed.add(at / SIDE * SUMS + row * SIDE + at % SIDE);
                    let value = U::F::mul(U::F::load(mixed), share);
                    let (column, count) = (self.number * self.dim + at, self.dim - at);
                    if !out.is_in_tiles() {
                        U::F::store_some(out.at(to).add(column), count, value);
                    } else if count >= 16 && column.is_multiple_of(16) {
                        U::F::store_bf16(out.half(to, column), value);
                    } else {
                        let mut halves = [0; 16];
                        U::F::store_bf16(halves.as_mut_ptr(), value);
                        for (i, &half) in halves.iter().enumerate().take(count) {
                            *out.half(to, column + i) = half;
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amx::Emulator;
    use crate::attention::strips;
    use crate::rope::Turns;
    use crate::rows::{room, strips_room};
    use crate::{AttentionHead, Isa};

    /// Attention of a head of two, in f32, and what it is of the rounded queries, keys and values written out.
    fn attended<U: TileUnit>(
        qkv: &[f32],
        length: usize,
        dim: usize,
        number: usize,
    ) -> [Vec<f32>; 2] {
        let (hidden, queries) = (2 * dim, length / 3..length);
        let mut scratch = Scratch::default();
        scratch.grow(length, dim).expect("memory");
        for memory in [&mut scratch.keys, &mut scratch.values, &mut scratch.block] {
            memory.fill(f32::NAN); // Of an earlier use.
        }
        let width = strips::width(hidden, dim);
        let turns = Turns {
            rotations: None,
            positions: &[],
            dim,
            hidden,
        };
        // Of an earlier use, and of other sequences before and after this one.
        let mut memory = vec![f32::NAN; strips_room(length + 9, width)];
        let all = RowsMut::strips(&mut memory, length + 9, width);
        let own = unsafe { all.part_mut(5..5 + length) };
        strips::fill(Isa::Portable, Rows::new(qkv, 3 * hidden), turns, &own);
        let head = AttentionHead { number, dim };
        let task = Task {
            qkv: own.as_rows(),
            head,
            queries: queries.clone(),
        };
        let mut found = vec![0.0; queries.len() * hidden];
        unsafe { attend::<U>(&task, &mut RowsMut::new(&mut found, hidden), &mut scratch) }
        let mut memory = vec![0.0; room(queries.len(), hidden)];
        let mut tiles = RowsMut::tiles(&mut memory, queries.len(), hidden);
        unsafe { attend::<U>(&task, &mut tiles, &mut scratch) }
        for (at, &value) in found.iter().enumerate() {
            let half = unsafe { *tiles.half(at / hidden, at % hidden) };
            let half = half::bf16::from_bits(half);
            let rounded = half::bf16::from_f32(value);
            assert!(half == rounded || half.is_nan() && rounded.is_nan());
        }
        let value = |of: usize, row: usize, channel: usize| {
            let column = (2 * of + number) * width / 6 + channel;
            half::bf16::from_bits(unsafe { *own.half(row, column) }).to_f64()
        };
        let channels = number * dim..(number + 1) * dim;
        let (mut own_found, mut expected) = (Vec::new(), Vec::new());
        for (row, query) in queries.enumerate() {
            let scores = (0..length).map(|key| {
                let products = (0..dim).map(|k| value(0, query, k) * value(1, key, k));
                products.sum::<f64>()
            });
            let scores: Vec<f64> = scores.collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<_> = scores.iter().map(|s| (s - largest).exp2()).collect();
            let sum: f64 = weights.iter().sum();
            expected.extend((0..dim).map(|k| {
                let mix = weights.iter().enumerate();
                let mix = mix.map(|(key, weight)| weight * value(2, key, k));
                (mix.sum::<f64>() / sum) as f32
            }));
            own_found.extend(&found[row * hidden..][channels.clone()]);
        }
        [own_found, expected]
    }

    /// Values of bfloat16 between -2 and 2, queries times a factor.
    fn numbers(length: usize, dim: usize, factor: f32) -> Vec<f32> {
        let spread = (1..=(length * 6 * dim) as u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 8);
        let values = spread.map(|spread| spread as f32 / (1 << 22) as f32 - 2.0);
        let mut values: Vec<f32> = values.collect();
        for row in values.chunks_mut(6 * dim) {
            row[..2 * dim].iter_mut().for_each(|value| *value *= factor);
        }
        values
    }

    fn is_near([found, expected]: &[Vec<f32>; 2]) -> bool {
        let mut both = found.iter().zip(expected);
        both.all(|(found, expected)| (found - expected).abs() < 0.01)
    }

    /// With the emulator of the instructions, so that packing and tails are tested on every CPU.
    #[test]
    fn tiles_of_any_length_and_head_lose_what_rounding_loses() {
        // Weights fit, hardly, or not in some rows, or in none.
        for factor in [1.0, 20.0, 60.0, 1e4] {
            for (length, dim) in [(1, 16), (31, 24), (33, 32), (97, 64), (130, 6), (161, 40)] {
                let qkv = numbers(length, dim, factor);
                for number in 0..2 {
                    let both = attended::<Emulator>(&qkv, length, dim, number);
                    assert!(is_near(&both), "{length} of {dim} by {factor}");
                    #[cfg(target_arch = "x86_64")]
                    if Isa::Amx.is_available() {
                        let [found, _] = attended::<crate::amx::Amx>(&qkv, length, dim, number);
                        assert!(is_near(&[found, both[1].clone()]));
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_without_a_softmax_is_lost_alone() {
        let (length, dim) = (70, 32);
        let mut qkv = numbers(length, dim, 1.0);
        let all = attended::<Emulator>(&qkv, length, dim, 0);
        for (query, value) in [(40, f32::INFINITY), (44, f32::NAN), (69, 3e38)] {
            qkv[query * 6 * dim..][..dim].fill(value);
        }
        let [found, _] = attended::<Emulator>(&qkv, length, dim, 0);
        // A key of the last block, of the first channels alone, whose values are finite.
        let mut with_key = numbers(length, dim, 1.0);
        with_key[69 * 6 * dim + 2 * dim..][..dim].fill(f32::NAN);
        let [lost, _] = attended::<Emulator>(&with_key, length, dim, 0);
        assert!(lost.iter().all(|value| value.is_nan()));
        for (at, row) in found.chunks(dim).enumerate() {
            if [40, 44, 69].contains(&(at + length / 3)) {
                assert!(row.iter().all(|value| value.is_nan()), "{at}");
            } else {
                assert!(row == &all[0][at * dim..][..dim], "{at}");
            }
        }
    }
}
