//! Softmax attention of one head over one sequence, in blocks of queries and keys.
//!
//! Scores of a block of queries with a block of keys stay in the first cache. The softmax is streamed (Milakov and
//! Gimelshein 2018, arXiv:1805.02867): the largest score so far, the sum of exponentials and the weighted values are carried
//! from block to block and scaled down when a larger score comes.

#[cfg(target_arch = "x86_64")]
mod bf16;
mod f32;

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::aligned::{Aligned, OutOfMemory};
use crate::dispatch::dispatch;
use crate::exp::exp2;
use crate::simd::{Simd, prefetch};
use crate::{Isa, Multiply, Rows, RowsMut};

/// The most keys of a block.
const MOST_KEYS: usize = 512;
/// The most rows of a tile. More have no more speed: with two vectors each, 6 keep the multipliers busy.
const MOST_ROWS: usize = 6;
/// The most values of a vector.
const MOST_LANES: usize = 16;
/// Lower than any score. Where all are, their weights are no numbers.
const NONE: f32 = f32::NEG_INFINITY;

/// Memory for the keys and values of a sequence, and for a block of scores. Used again and again it grows no more.
#[derive(Debug, Default)]
pub struct Scratch {
    keys: Aligned,
    values: Aligned,
    block: Aligned,
}

impl Scratch {
    /// Makes room for a sequence of `length` tokens in a head of `dim` channels.
    pub fn grow(&mut self, length: usize, dim: usize) -> Result<(), OutOfMemory> {
        let [keys, values, block] = room(length, dim);
        self.keys.grow(keys)?;
        self.values.grow(values)?;
        self.block.grow(block)
    }

    fn holds(&self, length: usize, dim: usize) -> bool {
        let found = [&self.keys, &self.values, &self.block].map(|memory| memory.len());
        found
            .iter()
            .zip(room(length, dim))
            .all(|(&found, needed)| found >= needed)
    }
}

/// The values of keys, values and a block, enough for every instruction set.
fn room(length: usize, dim: usize) -> [usize; 3] {
    let (length, wide) = (length.next_multiple_of(32), dim.next_multiple_of(16));
    let block = MOST_ROWS * (MOST_KEYS + wide) + MOST_LANES * wide;
    [length * wide, length * wide, block]
}

/// A head of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Its place among all.
    pub number: usize,
    /// The channels of each.
    pub dim: usize,
}

/// The mix of values that each query of `queries` sees: `qkv` is `(length, 3·heads·dim)`, the queries, keys and values
/// of one sequence; `out`, `(queries, heads·dim)`, gets the channels of this head. `scratch` has grown for the sequence.
///
/// Multiplied in bfloat16, scores and weights are rounded to it and sums are f32; `dim` is even then.
pub fn attention(
    isa: Isa,
    multiply: Multiply,
    qkv: Rows<'_>,
    head: Head,
    queries: Range<usize>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let hidden = out.width();
    assert_eq!(
        (qkv.width(), out.rows()),
        (3 * hidden, queries.len()),
        "the shapes fit"
    );
    assert!(
        (head.number + 1) * head.dim <= hidden,
        "there is such a head"
    );
    assert!(queries.end <= qkv.rows(), "the queries are of the sequence");
    assert!(scratch.holds(qkv.rows(), head.dim), "the scratch has grown");
    let task = Task { qkv, head, queries };
    match multiply {
        Multiply::F32 => {
            dispatch!(isa, in_f32(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch));
        }
        Multiply::Bf16 => {
            assert!(
                isa.has_bf16() && isa.is_available(),
                "{isa} multiplies no bfloat16"
            );
            assert!(head.dim.is_multiple_of(2), "channels come in pairs");
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions, and the shapes were compared.
            unsafe {
                bf16::blocks(task, out, scratch);
            }
        }
        Multiply::Int8 => panic!("scores and weights are no integers"),
    }
}

/// What is to be computed.
struct Task<'a> {
    qkv: Rows<'a>,
    head: Head,
    queries: Range<usize>,
}

#[inline(always)]
unsafe fn in_f32<S: Simd>(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch) {
    unsafe { attend::<S, f32::Products>(task, out, scratch) }
}

/// How scores and mixes are multiplied: in words of 32 bits, which are one value or two that are summed up as a pair.
trait Products<S: Simd> {
    /// The values of a word.
    const VALUES: usize;
    /// The keys of a block, whose values are added one after the other.
    const KEYS: usize;

    /// Writes `count` values times `factor` to words, which are filled up with zeros to whole vectors.
    unsafe fn convert(to: *mut f32, from: *const f32, count: usize, factor: f32);

    /// Writes `dim` channels of all rows, from `channel` on, to `(rows/VALUES, wide)`: a word is a channel of `VALUES` rows.
    unsafe fn stack(to: *mut f32, rows: Rows<'_>, channel: usize, dim: usize, wide: usize);

    /// Stores the weights of a vector of keys from `key` on in the words of a row.
    unsafe fn weigh(row: *mut f32, key: usize, weights: S::V);

    /// [`part`](crate::tile::part) with words for values.
    unsafe fn tile<const ROWS: usize, const VECTORS: usize>(
        sums: &mut [[S::V; VECTORS]; ROWS],
        words: usize,
        a: *const f32,
        a_stride: usize,
        b: *const f32,
        b_stride: usize,
    );
}

#[inline(always)]
unsafe fn attend<S: Simd, P: Products<S>>(
    task: Task<'_>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let Task { qkv, head, queries } = task;
    let Range { start, end } = queries;
    let packed = unsafe { Packed::new::<S, P>(qkv, head, scratch) };
    // As equal as possible: a tile of few rows takes nearly as long as one of many.
    let tiles = (end - start).div_ceil(MOST_ROWS);
    let edge = |tile: usize| start + (end - start) * tile / tiles;
    for tile in 0..tiles {
        let (first, rows) = (edge(tile), edge(tile + 1) - edge(tile));
        macro_rules! with_rows {
            ($($rows:literal)*) => {
                match rows {
                    $($rows => unsafe {
                        packed.mix::<S, P, $rows>(first, out, first - start);
                    })*
                    _ => unreachable!("a tile has no more rows"),
                }
            };
        }
        with_rows!(1 2 3 4 5 6);
    }
}

/// A sequence whose keys and values are packed, and room for some of its queries.
struct Packed<'a> {
    qkv: Rows<'a>,
    head: Head,
    /// Of a query or key, filled up to whole fours.
    words: usize,
    /// Channels, filled up to whole vectors.
    wide: usize,
    /// Panels of `(words, 2·LANES)`.
    keys: *const f32,
    /// `(length/VALUES, wide)`
    values: *const f32,
    /// `(ROWS, wide)`
    queries: *mut f32,
    /// `(ROWS, KEYS)`
    scores: *mut f32,
}

/// What is added to the scores of a panel: from a place as many values before the middle as there are keys.
static FLOOR: [f32; 4 * MOST_LANES] = {
    let mut floor = [0.0; 4 * MOST_LANES];
    let mut past = 2 * MOST_LANES;
    while past < floor.len() {
        floor[past] = NONE;
        past += 1;
    }
    floor
};

impl<'a> Packed<'a> {
    #[inline(always)]
    unsafe fn new<S: Simd, P: Products<S>>(
        qkv: Rows<'a>,
        head: Head,
        scratch: &mut Scratch,
    ) -> Self {
        let (length, hidden, dim) = (qkv.rows(), qkv.width() / 3, head.dim);
        let words = dim.div_ceil(P::VALUES).next_multiple_of(4);
        let wide = dim.next_multiple_of(S::LANES);
        let (keys, values) = (scratch.keys.as_mut_ptr(), scratch.values.as_mut_ptr());
        let scores = scratch.block.as_mut_ptr();
        let channel = hidden + head.number * dim;
        let columns = 2 * S::LANES;
        unsafe {
            let queries = scores.add(MOST_ROWS * MOST_KEYS);
            let some = queries; // (LANES, wide)
            for first in (0..length).step_by(S::LANES) {
                let there = S::LANES.min(length - first);
                for row in 0..there {
                    let key = qkv.at(first + row).add(channel);
                    P::convert(some.add(row * wide), key, dim, 1.0);
                }
                // Past the end, keys whose scores are 0.
                std::ptr::write_bytes(some.add(there * wide), 0, (S::LANES - there) * wide);
                let panel = keys.add(first / columns * columns * words + first % columns);
                for word in (0..words).step_by(4) {
                    for (i, column) in S::columns(some.add(word), wide).into_iter().enumerate() {
                        S::store(panel.add((word + i) * columns), column);
                    }
                }
            }
            P::stack(values, qkv, channel + hidden, dim, wide);
            Self {
                qkv,
                head,
                words,
                wide,
                keys,
                values,
                queries,
                scores,
            }
        }
    }

    /// The mixes of `ROWS` queries from `first` on, to rows of `out` from `to` on.
    #[inline(always)]
    unsafe fn mix<S: Simd, P: Products<S>, const ROWS: usize>(
        &self,
        first: usize,
        out: &mut RowsMut<'_>,
        to: usize,
    ) {
        let Head { number, dim } = self.head;
        let (length, wide) = (self.qkv.rows(), self.wide);
        // Scores are powers of 2, which are quicker to take.
        let scale = LOG2_E / (dim as f32).sqrt();
        unsafe {
            for row in 0..ROWS {
                let query = self.qkv.at(first + row).add(number * dim);
                P::convert(self.queries.add(row * wide), query, dim, scale);
                for part in 0..3 {
                    for k in (0..dim).step_by(16) {
                        prefetch(query.wrapping_add(part * self.qkv.width() / 3 + dim + k));
                    }
                }
            }
            let mixed = self.queries.add(MOST_LANES * wide); // (ROWS, wide)
            std::ptr::write_bytes(mixed, 0, ROWS * wide);
            let mut largest = [NONE; ROWS];
            let mut sums = [S::splat(0.0); ROWS];
            for key in (0..length).step_by(P::KEYS) {
                let count = P::KEYS.min(length - key);
                let most = self.score::<S, P, ROWS>(key, count);
                let mut down = [0.0; MOST_LANES];
                for row in 0..ROWS {
                    let before = largest[row];
                    largest[row] = S::largest(S::max(S::splat(before), most[row]));
                    down[row] = before - largest[row];
                }
                let down_to = down.as_mut_ptr();
                S::store(down_to, exp2::<S>(S::load(down_to)));
                for row in 0..ROWS {
                    let scores = self.scores.add(row * P::KEYS);
                    let sum = soften::<S, P>(scores, count, largest[row]);
                    sums[row] = S::mul_add(sums[row], S::splat(down[row]), sum);
                }
                self.add::<S, P, ROWS>(mixed, &down, key, count);
            }
            for (row, &sum) in sums.iter().enumerate() {
                let share = S::splat(1.0 / S::sum(sum));
                let (to, mixed) = (out.at(to + row).add(number * dim), mixed.add(row * wide));
                for k in (0..dim).step_by(S::LANES) {
                    S::store_some(to.add(k), dim - k, S::mul(S::load(mixed.add(k)), share));
                }
            }
        }
    }

    /// Scores of the queries with `count` keys from `key` on, and the largest of every `LANES`-th.
    #[inline(always)]
    unsafe fn score<S: Simd, P: Products<S>, const ROWS: usize>(
        &self,
        key: usize,
        count: usize,
    ) -> [S::V; ROWS] {
        let columns = 2 * S::LANES;
        let mut most = [unsafe { S::splat(NONE) }; ROWS];
        for first in (0..count).step_by(columns) {
            unsafe {
                let panel = self.keys.add((key + first) * self.words);
                let scores = self.scores.add(first);
                let there = count - first;
                if there > S::LANES {
                    self.score_panel::<S, P, ROWS, 2>(scores, &mut most, panel, there.min(columns));
                } else {
                    self.score_panel::<S, P, ROWS, 1>(scores, &mut most, panel, there);
                }
            }
        }
        most
    }

    /// Scores with the first `VECTORS` vectors of a panel, of whose keys `count` are there.
    #[inline(always)]
    unsafe fn score_panel<S: Simd, P: Products<S>, const ROWS: usize, const VECTORS: usize>(
        &self,
        scores: *mut f32,
        most: &mut [S::V; ROWS],
        panel: *const f32,
        count: usize,
    ) {
        unsafe {
            let floor = FLOOR.as_ptr().add(2 * MOST_LANES - count);
            let mut sums = [[S::splat(0.0); VECTORS]; ROWS];
            let (queries, words) = (self.queries, self.words);
            P::tile(&mut sums, words, queries, self.wide, panel, 2 * S::LANES);
            for (row, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    let sum = S::add(sum, S::load(floor.add(v * S::LANES)));
                    most[row] = S::max(most[row], sum);
                    S::store(scores.add(row * P::KEYS + v * S::LANES), sum);
                }
            }
        }
    }

    /// Adds the values of `count` keys from `key` on to what was mixed before, times `down`.
    #[inline(always)]
    unsafe fn add<S: Simd, P: Products<S>, const ROWS: usize>(
        &self,
        mixed: *mut f32,
        down: &[f32; MOST_LANES],
        key: usize,
        count: usize,
    ) {
        unsafe {
            let values = self.values.add(key / P::VALUES * self.wide);
            for channel in (0..self.wide).step_by(2 * S::LANES) {
                let (mixed, values) = (mixed.add(channel), values.add(channel));
                if channel + S::LANES < self.wide {
                    self.add_channels::<S, P, ROWS, 2>(mixed, down, values, count);
                } else {
                    self.add_channels::<S, P, ROWS, 1>(mixed, down, values, count);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn add_channels<S: Simd, P: Products<S>, const ROWS: usize, const VECTORS: usize>(
        &self,
        mixed: *mut f32,
        down: &[f32; MOST_LANES],
        values: *const f32,
        count: usize,
    ) {
        let words = count.div_ceil(P::VALUES);
        unsafe {
            let mut sums = [[S::splat(0.0); VECTORS]; ROWS];
            P::tile(&mut sums, words, self.scores, P::KEYS, values, self.wide);
            for (row, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    let to = mixed.add(row * self.wide + v * S::LANES);
                    S::store(to, S::mul_add(S::load(to), S::splat(down[row]), sum));
                }
            }
        }
    }
}

/// The scores of a row to weights, relative to the largest, and their sum in parts.
#[inline(always)]
unsafe fn soften<S: Simd, P: Products<S>>(scores: *mut f32, count: usize, largest: f32) -> S::V {
    unsafe {
        let mut sum = S::splat(0.0);
        for key in (0..count).step_by(S::LANES) {
            let weights = exp2::<S>(S::sub(S::load(scores.add(key)), S::splat(largest)));
            P::weigh(scores, key, weights);
            sum = S::add(sum, weights);
        }
        sum
    }
}
