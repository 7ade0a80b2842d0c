//! Attention in bfloat16 by products of tiles: 32 queries at once.

use std::ops::Range;

use super::packed::{NONE, add_floor, pack_keys};
use super::{Scratch, Task};
use crate::amx::{HALVES, Operands, SIDE, STEP, TileUnit};
use crate::exp::{COARSE, FINE, exp2};
use crate::simd::Simd;
use crate::{Rows, RowsMut};

/// The keys of a block: two blocks of scores with 32 queries fill two thirds of a first-level cache.
const KEYS: usize = 128;
/// The sums of a block of rows and columns.
const SUMS: usize = SIDE * SIDE;

/// Returns the values of f32 for two blocks of scores, and mixes.
pub(super) const fn room(dim: usize) -> usize {
    2 * SIDE * KEYS + SIDE * dim.next_multiple_of(SIDE)
}

/// What attention reads of a head.
const QUERIES: usize = 0;
const KEYS_OF: usize = 1;
const VALUES: usize = 2;

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
    /// `(2, KEYS/32, 32, 32)`: scores, which weights of bfloat16 replace.
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
    scores: *mut f32,
}

impl Block {
    /// Replaces the scores of a row by softmax weights relative to the largest. Returns their sum in lanes.
    #[inline(always)]
    unsafe fn soften<S: Simd>(&self, row: usize, largest: f32) -> S::V {
        unsafe {
            let largest = S::splat(largest);
            let weight = |score| exp2::<S>(S::sub(S::load(score), largest), COARSE);
            let mut sums = [S::splat(0.0); 2];
            for panel in 0..self.panels {
                let scores = self.scores.add(panel * SUMS);
                let low = weight(scores.add(row * SIDE));
                let high = weight(scores.add(row * SIDE + 16));
                sums = [S::add(sums[0], low), S::add(sums[1], high)];
                // A row of weights takes half of the memory: that of scores that are done.
                S::store_bf16_both(scores.cast::<u16>().add(row * HALVES), low, high);
            }
            S::add(sums[0], sums[1])
        }
    }
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
        mixed: scores.wrapping_add(2 * SIDE * KEYS),
    };
    unsafe {
        head.pack();
        head.mix(&task.queries, out);
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
        const NONE: [u16; HALVES] = [0; HALVES];
        let there = self.qkv.rows();
        let length = there.next_multiple_of(SIDE);
        for channel in (0..self.wide).step_by(SIDE) {
            let [keys, values] = [KEYS_OF, VALUES].map(|of| {
                let first = self.strip(of, channel).0;
                move |row| {
                    if row < there {
                        first.wrapping_add(row * HALVES)
                    } else {
                        NONE.as_ptr()
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
                for row in (0..length).step_by(2) {
                    let to = self.values.add(row * self.wide + 2 * channel);
                    U::F::interleave(to, [values(row), values(row + 1)]);
                }
            }
        }
    }

    /// Computes the mixes of queries and writes them to the rows of `out`.
    #[inline(always)]
    unsafe fn mix(&self, queries: &Range<usize>, out: &mut RowsMut<'_>) {
        let blocks = self.qkv.rows().div_ceil(KEYS);
        let count = queries.len().div_ceil(SIDE) * blocks;
        let mut largest = [NONE; SIDE];
        unsafe {
            let mut sums = [U::F::splat(0.0); SIDE];
            let mut next = self.block(queries, 0, blocks);
            for panel in 0..next.panels {
                self.score(&next, panel);
            }
            for turn in 0..count {
                let block = next;
                next = self.block(queries, turn + 1, blocks);
                if turn + 1 == count {
                    next.panels = 0;
                }
                if block.key == 0 {
                    largest = [NONE; SIDE];
                }
                let down = self.raise(&block, &mut largest);
                let mut scored = 0;
                for row in 0..SIDE {
                    if row < block.count {
                        let sum = block.soften::<U::F>(row, largest[row]);
                        sums[row] = self.lower(&block, row, down[row], sums[row], sum);
                    }
                    // Scores are computed by other units meanwhile.
                    while scored < next.panels * (row + 1) / SIDE {
                        self.score(&next, scored);
                        scored += 1;
                    }
                }
                self.add_values(&block);
                if next.key == 0 || turn + 1 == count {
                    self.store(&block, &sums, out, block.first - queries.start);
                }
            }
        }
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
            scores: self.scores.wrapping_add(number % 2 * SIDE * KEYS),
        }
    }

    /// Computes the scores of queries with 32 keys.
    #[inline(always)]
    unsafe fn score(&self, block: &Block, panel: usize) {
        unsafe {
            let first = block.key + panel * SIDE;
            let (queries, apart) = self.strip(QUERIES, 0);
            let length = self.qkv.rows().next_multiple_of(SIDE);
            self.unit.begin(None);
            for strip in 0..self.wide / HALVES {
                let keys = self.keys.add((strip * length + first) * HALVES / 2).cast();
                self.unit.bf16(Operands {
                    left: queries.add(strip * apart + block.first * HALVES).cast(),
                    left_step: 0,
                    right: keys,
                    right_row: 2 * STEP,
                    steps: 1,
                    ahead: keys.wrapping_add(SIDE * STEP),
                    reuses_left: true,
                });
            }
            self.unit.end(block.scores.add(panel * SUMS));
        }
    }

    /// Adds the sums of a row's weights to those before, and lowers these and their mixes to the scale of now.
    #[inline(always)]
    unsafe fn lower(
        &self,
        block: &Block,
        row: usize,
        down: f32,
        before: <U::F as Simd>::V,
        sum: <U::F as Simd>::V,
    ) -> <U::F as Simd>::V {
        if block.key == 0 {
            return sum;
        }
        unsafe {
            let down = U::F::splat(down);
            for at in (0..self.wide).step_by(16) {
                let mixed = self.mixed.add(at / SIDE * SUMS + row * SIDE + at % SIDE);
                U::F::store(mixed, U::F::mul(U::F::load(mixed), down));
            }
            U::F::mul_add(before, down, sum)
        }
    }

    /// Adds the weighted values of a block to its mixes.
    #[inline(always)]
    unsafe fn add_values(&self, block: &Block) {
        for channel in (0..self.wide).step_by(SIDE) {
            unsafe {
                let values = self.values.add(block.key * self.wide + 2 * channel).cast();
                let operands = Operands {
                    left: block.scores.cast(),
                    left_step: SUMS * size_of::<f32>(),
                    right: values,
                    right_row: self.wide * 4,
                    steps: block.panels,
                    ahead: values,
                    reuses_left: true,
                };
                let mixed = self.mixed.add(channel * SIDE);
                self.unit.begin((block.key > 0).then_some(mixed));
                self.unit.bf16(operands);
                self.unit.end(mixed);
            }
        }
    }

    /// Stores mixes, divided by the sums of their weights, to rows from `to`.
    #[inline(always)]
    unsafe fn store(
        &self,
        block: &Block,
        sums: &[<U::F as Simd>::V; SIDE],
        out: &mut RowsMut<'_>,
        to: usize,
    ) {
        unsafe {
            for (row, &sum) in sums.iter().enumerate().take(block.count) {
                let share = U::F::splat(1.0 / U::F::sum(sum));
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

    /// Raises the largest score of each row to that of a block. Returns the factors of weights relative to those before.
    #[inline(always)]
    unsafe fn raise(&self, block: &Block, largest: &mut [f32; SIDE]) -> [f32; SIDE] {
        let &Block { count, panels, .. } = block;
        let mut down = *largest;
        unsafe {
            // Keys past the end.
            let there = self.qkv.rows() - block.key;
            if there < panels * SIDE {
                let last = block.scores.add((panels - 1) * SUMS);
                add_floor::<U::F>(last, count, there % SIDE);
            }
            for (row, largest) in largest.iter_mut().enumerate().take(count) {
                let scores = block.scores.add(row * SIDE);
                let mut most = [U::F::splat(*largest); 2];
                for panel in 0..panels {
                    let scores = scores.add(panel * SUMS);
                    most[0] = U::F::max(most[0], U::F::load(scores));
                    most[1] = U::F::max(most[1], U::F::load(scores.add(16)));
                }
                *largest = U::F::largest(U::F::max(most[0], most[1]));
            }
            for row in [0, 16] {
                let down = down.as_mut_ptr().add(row);
                let now = U::F::load(largest.as_ptr().add(row));
                U::F::store(down, exp2::<U::F>(U::F::sub(U::F::load(down), now), FINE));
            }
        }
        down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amx::Model;
    use crate::attention::strips;
    use crate::rope::Turns;
    use crate::rows::{room, strips_room};
    use crate::{AttentionHead, Dtype, Isa, attention};

    /// With the model of the instructions, so that packing and tails are tested on every CPU.
    #[test]
    fn tiles_of_any_length_and_head_lose_what_rounding_loses() {
        for (length, dim) in [(1, 16), (31, 24), (33, 32), (257, 64), (300, 6), (520, 40)] {
            let (heads, width) = (2, 6 * dim);
            let spread = (1..=(length * width) as u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 8);
            let qkv = spread.map(|spread| spread as f32 / (1 << 22) as f32 - 2.0);
            let qkv: Vec<f32> = qkv
                .map(|value| half::bf16::from_f32(value).to_f32())
                .collect();
            let mut scratch = Scratch::default();
            scratch.grow(length, dim).expect("memory");
            for memory in [&mut scratch.keys, &mut scratch.values, &mut scratch.block] {
                memory.fill(f32::NAN); // Of an earlier use.
            }
            for number in 0..heads {
                let head = AttentionHead { number, dim };
                let queries = length / 3..length;
                let qkv = Rows::new(&qkv, width);
                let size = queries.len() * heads * dim;
                let (mut found, mut expected) = (vec![0.0; size], vec![0.0; size]);
                let into = &mut RowsMut::new(&mut expected, heads * dim);
                attention(
                    Isa::Portable,
                    Dtype::F32,
                    qkv,
                    head,
                    queries.clone(),
                    into,
                    &mut scratch,
                );
                let into = &mut RowsMut::new(&mut found, heads * dim);
                let width = strips::width(heads * dim, dim);
                let turns = Turns {
                    rotations: None,
                    positions: &[],
                    dim,
                    hidden: heads * dim,
                };
                // Of an earlier use, and of other sequences before and after this one.
                let mut memory = vec![f32::NAN; strips_room(length + 9, width)];
                let all = RowsMut::strips(&mut memory, length + 9, width);
                let own = unsafe { all.part_mut(5..5 + length) };
                strips::fill(Isa::Portable, qkv, turns, &own);
                let task = Task {
                    qkv: own.as_rows(),
                    head,
                    queries,
                };
                unsafe { attend::<Model>(&task, into, &mut scratch) }
                let rows = task.queries.len();
                let mut memory = vec![0.0; room(rows, heads * dim)];
                let mut tiles = RowsMut::tiles(&mut memory, rows, heads * dim);
                unsafe { attend::<Model>(&task, &mut tiles, &mut scratch) }
                for (at, &value) in found.iter().enumerate() {
                    let (row, column) = (at / (heads * dim), at % (heads * dim));
                    let rounded = half::bf16::from_f32(value).to_bits();
                    assert_eq!(unsafe { *tiles.half(row, column) }, rounded);
                }
                for (found, expected) in found.iter().zip(&expected) {
                    let error = (found - expected).abs();
                    assert!(
                        error < 0.02,
                        "{length} of {dim}: {found}, expected {expected}"
                    );
                }
            }
        }
    }
}
