//! Packed keys and values of a head, and attention with them.

use std::f32::consts::LOG2_E;

use super::{AttentionHead, MOST_KEYS, MOST_LANES, MOST_ROWS, Products, Scratch};
use crate::exp::{FINE, exp2};
use crate::simd::{Simd, prefetch};
use crate::{Rows, RowsMut};

/// Less than any score. If all scores are, the weights are NaN.
pub(super) const NONE: f32 = f32::NEG_INFINITY;

/// A sequence with packed keys and values, and memory for a tile of queries.
pub(super) struct Packed<'a> {
    qkv: Rows<'a>,
    head: AttentionHead,
    /// The words of a query or key, padded to a multiple of four.
    words: usize,
    /// The channels, padded to whole vectors.
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

/// Added to the scores of a panel, to exclude keys past the end: 0 before the middle, [`NONE`] after it.
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
    /// Packs keys and values. `scratch` has grown for them.
    #[inline(always)]
    pub(super) unsafe fn new<S: Simd, P: Products<S>>(
        qkv: Rows<'a>,
        head: AttentionHead,
        scratch: &mut Scratch,
    ) -> Self {
        let (length, hidden, dim) = (qkv.rows(), qkv.width() / 3, head.dim);
        let words = dim.div_ceil(P::VALUES).next_multiple_of(4);
        let wide = dim.next_multiple_of(S::LANES);
        let (keys, values) = (scratch.keys.as_mut_ptr(), scratch.values.as_mut_ptr());
        let scores = scratch.block.as_mut_ptr();
        let channel = hidden + head.number * dim;
        unsafe {
            let queries = scores.add(MOST_ROWS * MOST_KEYS);
            // Keys past the end have score 0.
            pack_keys::<S>(keys, words, queries, wide, length, |row, to| {
                if row < length {
                    P::convert(to, qkv.at(row).add(channel), dim, 1.0);
                } else {
                    std::ptr::write_bytes(to, 0, wide);
                }
            });
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

    /// Computes the mixes of `ROWS` queries from `first` and writes them to rows of `out` from `to`.
    #[inline(always)]
    pub(super) unsafe fn mix<S: Simd, P: Products<S>, const ROWS: usize>(
        &self,
        first: usize,
        out: &mut RowsMut<'_>,
        to: usize,
    ) {
        let AttentionHead { number, dim } = self.head;
        let (length, wide) = (self.qkv.rows(), self.wide);
        unsafe {
            self.load_queries::<S, P, ROWS>(first);
            let mixed = self.queries.add(MOST_LANES * wide); // (ROWS, wide)
            std::ptr::write_bytes(mixed, 0, ROWS * wide);
            let mut largest = [NONE; ROWS];
            let mut sums = [S::splat(0.0); ROWS];
            for key in (0..length).step_by(P::KEYS) {
                let count = P::KEYS.min(length - key);
                let most = self.score::<S, P, ROWS>(key, count);
                // A vector has at least as many values as a tile has rows.
                let mut down = [0.0; MOST_LANES];
                for row in 0..ROWS {
                    let before = largest[row];
                    largest[row] = S::largest(S::max(S::splat(before), most[row]));
                    down[row] = before - largest[row];
                }
                let down_to = down.as_mut_ptr();
                S::store(down_to, exp2::<S>(S::load(down_to), FINE));
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

    /// Loads `ROWS` queries from `first`, for [`score`](Self::score).
    #[inline(always)]
    unsafe fn load_queries<S: Simd, P: Products<S>, const ROWS: usize>(&self, first: usize) {
        let AttentionHead { number, dim } = self.head;
        // Scores are exponents of 2, because powers of 2 are faster than those of e.
        let scale = LOG2_E / (dim as f32).sqrt();
        for row in 0..ROWS {
            unsafe {
                let query = self.qkv.at(first + row).add(number * dim);
                P::convert(self.queries.add(row * self.wide), query, dim, scale);
                // The next head, which is the neighbour of this one, is not yet in a cache. The next tile is not there any more:
                // rows of a long sequence evict each other.
                let (width, hidden) = (self.qkv.width(), self.qkv.width() / 3);
                for ahead in [dim, hidden + dim, 2 * hidden + dim, MOST_ROWS * width] {
                    for k in (0..dim).step_by(16) {
                        prefetch(query.wrapping_add(ahead + k));
                    }
                }
            }
        }
    }

    /// Writes the softmax weights of `ROWS` queries from `first` with all keys to rows that are `stride` apart, a multiple of
    /// [`MOST_KEYS`]. Returns the sum of each row, by which its weights are to be divided.
    #[inline(always)]
    pub(super) unsafe fn weights<S: Simd, P: Products<S>, const ROWS: usize>(
        &self,
        first: usize,
        out: &mut [f32],
        stride: usize,
    ) -> [f32; ROWS] {
        let length = self.qkv.rows();
        assert!(stride >= length && out.len() >= ROWS * stride);
        let mut largest = [NONE; ROWS];
        unsafe {
            self.load_queries::<S, P, ROWS>(first);
            for key in (0..length).step_by(P::KEYS) {
                let count = P::KEYS.min(length - key);
                let most = self.score::<S, P, ROWS>(key, count);
                // Scores past the last key are those of no key.
                let padded = count.next_multiple_of(S::LANES);
                for row in 0..ROWS {
                    largest[row] = S::largest(S::max(S::splat(largest[row]), most[row]));
                    let scores = std::slice::from_raw_parts(self.scores.add(row * P::KEYS), padded);
                    out[row * stride + key..][..padded].copy_from_slice(scores);
                }
            }
            let mut sums = [0.0; ROWS];
            for row in 0..ROWS {
                let scores = out[row * stride..][..stride].as_mut_ptr();
                sums[row] = S::sum(soften::<S, P>(scores, length, largest[row]));
            }
            sums
        }
    }

    /// Computes the scores of the queries with `count` keys from `key`. Returns the largest score of each lane.
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
                if there >= columns {
                    self.score_panel::<S, P, ROWS, 2>(scores, &mut most, panel, None);
                } else if there > S::LANES {
                    self.score_panel::<S, P, ROWS, 2>(scores, &mut most, panel, Some(there));
                } else {
                    self.score_panel::<S, P, ROWS, 1>(scores, &mut most, panel, Some(there));
                }
            }
        }
        most
    }

    /// Computes the scores with the first `VECTORS` vectors of a panel that has `count` keys, or no key past the end.
    #[inline(always)]
    unsafe fn score_panel<S: Simd, P: Products<S>, const ROWS: usize, const VECTORS: usize>(
        &self,
        scores: *mut f32,
        most: &mut [S::V; ROWS],
        panel: *const f32,
        count: Option<usize>,
    ) {
        unsafe {
            let floor = count.map(|count| FLOOR.as_ptr().add(2 * MOST_LANES - count));
            let mut sums = [[S::splat(0.0); VECTORS]; ROWS];
            let (queries, words) = (self.queries, self.words);
            P::tile(&mut sums, words, queries, self.wide, panel, 2 * S::LANES);
            for (row, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    let mut sum = sum;
                    if let Some(floor) = floor {
                        sum = S::add(sum, S::load(floor.add(v * S::LANES)));
                    }
                    most[row] = S::max(most[row], sum);
                    S::store(scores.add(row * P::KEYS + v * S::LANES), sum);
                }
            }
        }
    }

    /// Multiplies the mixes by `down` and adds the weighted values of `count` keys from `key`.
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

    /// [`add`](Self::add) for `VECTORS` vectors of channels.
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

/// Packs the words of at least `count` keys in panels of `(words, 2·LANES)`. `convert` writes those of a key; memory for a vector of
/// keys, with rows so far apart, comes with it.
#[inline(always)]
pub(super) unsafe fn pack_keys<S: Simd>(
    panels: *mut f32,
    words: usize,
    some: *mut f32,
    stride: usize,
    count: usize,
    convert: impl Fn(usize, *mut f32),
) {
    let columns = 2 * S::LANES;
    for first in (0..count).step_by(S::LANES) {
        unsafe {
            for row in 0..S::LANES {
                convert(first + row, some.add(row * stride));
            }
            let panel = panels.add(first / columns * columns * words + first % columns);
            for word in (0..words).step_by(4) {
                let four = S::columns(some.add(word), stride);
                for (i, column) in four.into_iter().enumerate() {
                    S::store(panel.add((word + i) * columns), column);
                }
            }
        }
    }
}

/// Adds [`NONE`] to the scores of all but the first `there` of a panel's 32 keys, in so many rows.
#[inline(always)]
pub(super) unsafe fn add_floor<S: Simd>(scores: *mut f32, rows: usize, there: usize) {
    unsafe {
        let floor = FLOOR.as_ptr().add(2 * MOST_LANES - there);
        for row in 0..rows {
            for at in (0..2 * MOST_LANES).step_by(S::LANES) {
                let score = scores.add(row * 2 * MOST_LANES + at);
                S::store(score, S::add(S::load(score), S::load(floor.add(at))));
            }
        }
    }
}

/// Replaces the scores of a row by softmax weights relative to the largest. Returns their sum in lanes.
#[inline(always)]
unsafe fn soften<S: Simd, P: Products<S>>(scores: *mut f32, count: usize, largest: f32) -> S::V {
    unsafe {
        let mut sum = S::splat(0.0);
        for key in (0..count).step_by(S::LANES) {
            let weights = exp2::<S>(S::sub(S::load(scores.add(key)), S::splat(largest)), P::EXP2);
            P::weigh(scores, key, weights);
            sum = S::add(sum, weights);
        }
        sum
    }
}
