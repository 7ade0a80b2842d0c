//! Softmax attention of one head over one sequence, in blocks of queries and keys.
//!
//! Scores of a block of queries with a block of keys stay in the first cache. The softmax is streamed (Milakov and
//! Gimelshein 2018, arXiv:1805.02867): the largest score so far, the sum of exponentials and the weighted values are carried
//! from block to block and scaled down when a larger score comes.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use crate::aligned::{Aligned, OutOfMemory};
use crate::dispatch::dispatch;
use crate::exp::exp2;
use crate::simd::Simd;
use crate::tile::tile;
use crate::{Isa, Rows, RowsMut};

/// Keys of a block.
const KEYS: usize = 256;
/// The most rows of a tile.
const MOST_ROWS: usize = 12;
/// Lower than any score, and no infinity: a difference of two is 0.
const NONE: f32 = -1e30;

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
        // Enough for every instruction set.
        let (length, wide) = (length.next_multiple_of(32), dim.next_multiple_of(16));
        self.keys.grow(length * dim)?;
        self.values.grow(length * wide)?;
        self.block.grow(MOST_ROWS * (KEYS + dim + wide))
    }
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
pub fn attention(
    isa: Isa,
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
    dispatch!(
        isa,
        attend(
            qkv: Rows<'_>,
            head: Head,
            queries: Range<usize>,
            out: &mut RowsMut<'_>,
            scratch: &mut Scratch,
        )
    );
}

#[inline(always)]
unsafe fn attend<S: Simd>(
    qkv: Rows<'_>,
    head: Head,
    queries: Range<usize>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    unsafe {
        pack::<S>(qkv, head, scratch);
        match S::LANES {
            16 => blocks::<S, 12>(qkv, head, queries, out, scratch),
            _ => blocks::<S, 6>(qkv, head, queries, out, scratch),
        }
    }
}

/// Channels of a head, filled up to whole vectors.
fn padded<S: Simd>(head: Head) -> usize {
    head.dim.next_multiple_of(S::LANES)
}

/// Copies the keys to panels of two vectors of keys, `(dim, 2·LANES)` each, and the values to rows of whole vectors.
#[inline(always)]
unsafe fn pack<S: Simd>(qkv: Rows<'_>, head: Head, scratch: &mut Scratch) {
    let (length, dim, columns) = (qkv.rows(), head.dim, 2 * S::LANES);
    let (hidden, wide) = (qkv.width() / 3, padded::<S>(head));
    let (keys, values) = (scratch.keys.as_mut_ptr(), scratch.values.as_mut_ptr());
    unsafe {
        for row in 0..length {
            let key = qkv.at(row).add(hidden + head.number * dim);
            let panel = keys.add(row / columns * columns * dim + row % columns);
            for k in 0..dim {
                *panel.add(k * columns) = *key.add(k);
            }
            let value = key.add(hidden);
            std::ptr::copy_nonoverlapping(value, values.add(row * wide), dim);
            for k in dim..wide {
                *values.add(row * wide + k) = 0.0;
            }
        }
        // What another sequence left there: it gives scores, which are not used, and must not be slow.
        for row in length..length.next_multiple_of(columns) {
            let panel = keys.add(row / columns * columns * dim + row % columns);
            for k in 0..dim {
                *panel.add(k * columns) = 0.0;
            }
        }
    }
}

#[inline(always)]
unsafe fn blocks<S: Simd, const ROWS: usize>(
    qkv: Rows<'_>,
    head: Head,
    queries: Range<usize>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let (length, dim, wide) = (qkv.rows(), head.dim, padded::<S>(head));
    let (keys, values) = (scratch.keys.as_ptr(), scratch.values.as_ptr());
    let scores = scratch.block.as_mut_ptr();
    // Scores are powers of 2, which are quicker to take.
    let scale = LOG2_E / (dim as f32).sqrt();
    unsafe {
        let scaled = scores.add(MOST_ROWS * KEYS); // (ROWS, dim)
        let mixed = scaled.add(MOST_ROWS * dim); // (ROWS, wide)
        for first in queries.clone().step_by(ROWS) {
            let rows = ROWS.min(queries.end - first);
            for row in 0..ROWS {
                // Past the end, the last one again.
                let query = qkv.at(first + row.min(rows - 1)).add(head.number * dim);
                for k in 0..dim {
                    *scaled.add(row * dim + k) = *query.add(k) * scale;
                }
            }
            let mut largest = [NONE; ROWS];
            let mut sums = [0f32; ROWS];
            std::ptr::write_bytes(mixed, 0, ROWS * wide);
            for key in (0..length).step_by(KEYS) {
                let count = KEYS.min(length - key);
                score::<S, ROWS>(scores, scaled, dim, keys.add(key * dim), count);
                for row in 0..ROWS {
                    let scores = scores.add(row * KEYS);
                    let mixed = mixed.add(row * wide);
                    soften::<S>(
                        scores,
                        count,
                        &mut largest[row],
                        &mut sums[row],
                        mixed,
                        wide,
                    );
                }
                let values = values.add(key * wide);
                let mut channel = 0;
                while channel + 2 * S::LANES <= wide {
                    mix::<S, ROWS, 2>(mixed, scores, count, values, wide, channel);
                    channel += 2 * S::LANES;
                }
                if channel < wide {
                    mix::<S, ROWS, 1>(mixed, scores, count, values, wide, channel);
                }
            }
            for row in 0..rows {
                let to = out.at(first - queries.start + row).add(head.number * dim);
                for k in 0..dim {
                    *to.add(k) = *mixed.add(row * wide + k) / sums[row];
                }
            }
        }
    }
}

/// Scores of a block: `(ROWS, KEYS)`; those past the last key are lower than any.
#[inline(always)]
unsafe fn score<S: Simd, const ROWS: usize>(
    scores: *mut f32,
    scaled: *const f32,
    dim: usize,
    keys: *const f32,
    count: usize,
) {
    let columns = 2 * S::LANES;
    unsafe {
        for key in (0..count).step_by(columns) {
            let mut sums = [[S::splat(0.0); 2]; ROWS];
            tile::<S, ROWS, 2>(&mut sums, dim, scaled, dim, keys.add(key * dim), columns);
            for (row, [left, right]) in sums.into_iter().enumerate() {
                let to = scores.add(row * KEYS + key);
                S::store(to, left);
                S::store(to.add(S::LANES), right);
            }
        }
        for row in 0..ROWS {
            for key in count..count.next_multiple_of(columns) {
                *scores.add(row * KEYS + key) = NONE;
            }
        }
    }
}

/// The scores of a row to weights, relative to the largest so far; what was summed up is brought to the same measure.
#[inline(always)]
unsafe fn soften<S: Simd>(
    scores: *mut f32,
    count: usize,
    largest: &mut f32,
    sum: &mut f32,
    mixed: *mut f32,
    wide: usize,
) {
    let padded = count.next_multiple_of(2 * S::LANES);
    unsafe {
        let mut most = [S::splat(*largest); 2];
        for key in (0..padded).step_by(2 * S::LANES) {
            most[0] = S::max(most[0], S::load(scores.add(key)));
            most[1] = S::max(most[1], S::load(scores.add(key + S::LANES)));
        }
        let most = S::largest(S::max(most[0], most[1]));
        if most > *largest {
            let down = (*largest - most).exp2();
            *sum *= down;
            for k in (0..wide).step_by(S::LANES) {
                S::store(mixed.add(k), S::mul(S::load(mixed.add(k)), S::splat(down)));
            }
            *largest = most;
        }
        let shift = S::splat(*largest);
        let mut sums = [S::splat(0.0); 2];
        for key in (0..padded).step_by(2 * S::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let at = scores.add(key + i * S::LANES);
                let weight = exp2::<S>(S::sub(S::load(at), shift));
                S::store(at, weight);
                *sum = S::add(*sum, weight);
            }
        }
        *sum += S::sum(S::add(sums[0], sums[1]));
    }
}

/// Adds the weighted values of a block to some channels of `mixed`.
#[inline(always)]
unsafe fn mix<S: Simd, const ROWS: usize, const VECTORS: usize>(
    mixed: *mut f32,
    weights: *const f32,
    count: usize,
    values: *const f32,
    wide: usize,
    channel: usize,
) {
    unsafe {
        let at = |row: usize, v: usize| mixed.add(row * wide + channel + v * S::LANES);
        let mut sums = [[S::splat(0.0); VECTORS]; ROWS];
        for (row, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = S::load(at(row, v));
            }
        }
        tile::<S, ROWS, VECTORS>(&mut sums, count, weights, KEYS, values.add(channel), wide);
        for (row, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                S::store(at(row, v), sum);
            }
        }
    }
}
