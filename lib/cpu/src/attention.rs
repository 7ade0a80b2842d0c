//! Softmax attention of one head over one sequence, in blocks of queries and keys.
//!
//! Scores of a block of queries with a block of keys stay in the first-level cache. The softmax is streamed (Milakov and
//! Gimelshein 2018, arXiv:1805.02867): it keeps the largest score so far, the sum of exponentials and the weighted values, and
//! scales them down when a larger score comes.

mod amx;
#[cfg(target_arch = "x86_64")]
mod bf16;
mod f32;
mod maps;
mod packed;
pub(crate) mod strips;

use std::ops::Range;

use crate::aligned::{Aligned, OutOfMemory};
use crate::simd::Simd;
use crate::simd::dispatch::dispatch;
use crate::{Dtype, Isa, Rows, RowsMut};

pub(crate) use maps::{MapSums, add_maps};
use packed::Packed;

/// The most keys of a block.
const MOST_KEYS: usize = 512;
/// The most rows of a tile. 6 rows of two vectors keep the multipliers busy; more are not faster.
const MOST_ROWS: usize = 6;
/// The most values of a vector.
const MOST_LANES: usize = 16;

/// Memory for the keys and values of a sequence, and for a block of scores.
#[derive(Debug, Default)]
pub struct Scratch {
    keys: Aligned,
    values: Aligned,
    block: Aligned,
}

impl Scratch {
    /// Grows to a sequence of `length` tokens and a head of `dim` channels.
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

/// Returns the sizes of keys, values and block for any instruction set.
fn room(length: usize, dim: usize) -> [usize; 3] {
    let (length, wide) = (length.next_multiple_of(32), dim.next_multiple_of(16));
    let block = MOST_ROWS * (MOST_KEYS + wide) + MOST_LANES * wide;
    [length * wide, length * wide, block.max(amx::room(dim))]
}

/// A head of a layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionHead {
    /// Its index.
    pub number: usize,
    /// The channels of a head.
    pub dim: usize,
}

/// Computes the attention of `queries` in a head. `qkv`, `(length, 3·heads·dim)`, are the queries, keys and values of a sequence; or what
/// [`Epilogue::Attend`](crate::Epilogue::Attend) makes of them, which products of tiles read.
/// Writes the channels of the head in `out`, `(queries, heads·dim)`. `scratch` has grown for the sequence.
///
/// In bfloat16, scaled queries, keys, values and weights are rounded, sums are f32, and `dim` is even.
///
/// # Panics
/// If the shapes do not match, or for any other type: 8-bit integers are too coarse.
pub fn attention(
    isa: Isa,
    dtype: Dtype,
    qkv: Rows<'_>,
    head: AttentionHead,
    queries: Range<usize>,
    out: &mut RowsMut<'_>,
    scratch: &mut Scratch,
) {
    let hidden = out.width();
    let width = if qkv.is_in_tiles() {
        strips::width(hidden, head.dim)
    } else {
        3 * hidden
    };
    assert_eq!(
        (qkv.width(), out.rows()),
        (width, queries.len()),
        "the shapes fit"
    );
    assert!(
        (head.number + 1) * head.dim <= hidden,
        "there is such a head"
    );
    assert!(queries.end <= qkv.rows(), "the queries are of the sequence");
    assert!(
        qkv.is_in_tiles() || !out.is_in_tiles(),
        "only tiles are mixed to tiles"
    );
    assert!(scratch.holds(qkv.rows(), head.dim), "the scratch has grown");
    let task = Task { qkv, head, queries };
    match dtype {
        Dtype::F32 => {
            dispatch!(isa, in_f32(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch));
        }
        Dtype::Bf16 => {
            assert!(
                isa.attends_in_bf16() && isa.is_available(),
                "{isa} has no attention in bfloat16"
            );
            assert!(head.dim.is_multiple_of(2), "channels come in pairs");
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the CPU has the instructions, and the shapes were checked.
            unsafe {
                if qkv.is_in_tiles() {
                    assert!(isa == Isa::Amx, "the CPU multiplies tiles");
                    bf16::tiles(&task, out, scratch);
                } else {
                    bf16::blocks(task, out, scratch);
                }
            }
        }
        Dtype::F16 | Dtype::Int8 | Dtype::Fp8 => panic!("attention is in f32 or bfloat16"),
    }
}

/// The queries of a head.
struct Task<'a> {
    qkv: Rows<'a>,
    head: AttentionHead,
    queries: Range<usize>,
}

#[inline(always)]
unsafe fn in_f32<S: Simd>(task: Task<'_>, out: &mut RowsMut<'_>, scratch: &mut Scratch) {
    unsafe { attend::<S, f32::Products>(task, out, scratch) }
}

/// Products for scores and mixes, in words of 32 bits: one value, or a pair that is multiplied and summed together.
trait Products<S: Simd> {
    /// The values of a word.
    const VALUES: usize;
    /// The keys of a block. Their values are added one after the other.
    const KEYS: usize;

    /// Coefficients of [`exp2`](crate::exp::exp2) that are as exact as the weights.
    const EXP2: &[f32];

    /// Writes `count` values times `factor` to words, padded with zeros to whole vectors.
    unsafe fn convert(to: *mut f32, from: *const f32, count: usize, factor: f32);

    /// Writes `dim` channels of all rows, from `channel`, to `(rows/VALUES, wide)`: a word is a channel of `VALUES` rows.
    unsafe fn stack(to: *mut f32, rows: Rows<'_>, channel: usize, dim: usize, wide: usize);

    /// Stores the weights of a vector of keys, from `key`, in the words of a row.
    unsafe fn weigh(row: *mut f32, key: usize, weights: S::V);

    /// [`part`](crate::tile::part) with words instead of values.
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
    // Tiles of nearly equal size, because a tile of few rows takes nearly as long as one of many.
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
