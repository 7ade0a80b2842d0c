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
use crate::simd::Simd;
use crate::{Isa, Multiply, Rows, RowsMut};

/// Keys of a block.
const KEYS: usize = 256;
/// The most rows of a tile.
const MOST_ROWS: usize = 12;
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
    [length * dim, length * wide, MOST_ROWS * (KEYS + dim + wide)]
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
                bf16::attend(task, out, scratch);
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
    unsafe {
        match S::LANES {
            16 => blocks::<S, f32::Products, 12>(task, out, scratch),
            _ => blocks::<S, f32::Products, 6>(task, out, scratch),
        }
    }
}

/// How scores and mixes are multiplied. Memory is that of f32, of which another type may use less.
trait Products<S: Simd, const ROWS: usize> {
    /// Copies the keys to panels of two vectors of keys, and the values to rows of whole vectors.
    unsafe fn pack(qkv: Rows<'_>, head: Head, keys: *mut f32, values: *mut f32);

    /// Makes of queries, `(ROWS, dim)` f32, what [`score`](Self::score) reads, in place.
    unsafe fn queries(queries: *mut f32, dim: usize);

    /// Scores of the queries with `count` keys from `key` on: `(ROWS, KEYS)`, whole panels.
    unsafe fn score(
        scores: *mut f32,
        queries: *const f32,
        dim: usize,
        keys: *const f32,
        key: usize,
        count: usize,
    );

    /// Adds the values of `count` keys from `key` on to `mixed`, `(ROWS, wide)`, by their weights, `(ROWS, KEYS)`.
    unsafe fn mix(
        mixed: *mut f32,
        weights: *mut f32,
        count: usize,
        values: *const f32,
        key: usize,
        wide: usize,
    );
}

/// Channels of a head, filled up to whole vectors.
fn padded<S: Simd>(head: Head) -> usize {
    head.dim.next_multiple_of(S::LANES)
}

#[inline(always)]
unsafe fn blocks<S: Simd, P: Products<S, ROWS>, const ROWS: usize>(
    task: Task<'_>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let Task { qkv, head, queries } = task;
    let (length, dim, wide) = (qkv.rows(), head.dim, padded::<S>(head));
    let (keys, values) = (scratch.keys.as_mut_ptr(), scratch.values.as_mut_ptr());
    let scores = scratch.block.as_mut_ptr();
    // Scores are powers of 2, which are quicker to take.
    let scale = LOG2_E / (dim as f32).sqrt();
    unsafe {
        P::pack(qkv, head, keys, values);
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
            P::queries(scaled, dim);
            let mut largest = [NONE; ROWS];
            let mut sums = [0f32; ROWS];
            std::ptr::write_bytes(mixed, 0, ROWS * wide);
            for key in (0..length).step_by(KEYS) {
                let count = KEYS.min(length - key);
                P::score(scores, scaled, dim, keys, key, count);
                for row in 0..ROWS {
                    let scores = scores.add(row * KEYS);
                    // Lower than any, so that they weigh nothing.
                    for past in count..count.next_multiple_of(2 * S::LANES) {
                        *scores.add(past) = NONE;
                    }
                    let (largest, sum) = (&mut largest[row], &mut sums[row]);
                    soften::<S>(scores, count, largest, sum, mixed.add(row * wide), wide);
                }
                P::mix(mixed, scores, count, values, key, wide);
            }
            for (row, sum) in sums.iter().enumerate().take(rows) {
                let to = out.at(first - queries.start + row).add(head.number * dim);
                for k in 0..dim {
                    *to.add(k) = *mixed.add(row * wide + k) / sum;
                }
            }
        }
    }
}

/// Adds what `tile` computes to some vectors of `mixed`, `(ROWS, wide)`.
macro_rules! add_to {
    ($S:ty, $mixed:expr, $wide:expr, $rows:ident, $vectors:literal, |$sums:ident| $tile:expr) => {{
        let mut $sums = [[<$S>::splat(0.0); $vectors]; $rows];
        for (row, sums) in $sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = <$S>::load($mixed.add(row * $wide + v * <$S>::LANES));
            }
        }
        $tile;
        for (row, sums) in $sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                <$S>::store($mixed.add(row * $wide + v * <$S>::LANES), sum);
            }
        }
    }};
}

use add_to;

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
