//! Queries, keys and values in bfloat16, in the order that attention by tiles reads.

use crate::amx::SIDE;
use crate::rope::Turns;
use crate::simd::Simd;
use crate::simd::dispatch::dispatch;
use crate::{Isa, Rows, RowsMut};

/// Returns the columns of queries, keys and values of heads with `dim` channels, each of which begins with a tile.
pub(crate) fn width(hidden: usize, dim: usize) -> usize {
    3 * hidden / dim * dim.next_multiple_of(SIDE)
}

/// Rounds turned queries, keys and values, `(rows, 3·hidden)`, to strips: what [`Epilogue::Attend`](crate::Epilogue::Attend) does at once.
pub(crate) fn fill(isa: Isa, qkv: Rows<'_>, turns: Turns<'_>, strips: &RowsMut<'_>) {
    assert_eq!(
        (strips.rows(), strips.width()),
        (qkv.rows(), width(turns.hidden, turns.dim)),
        "the shapes fit"
    );
    dispatch!(isa, round(qkv: Rows<'_>, turns: Turns<'_>, strips: &RowsMut<'_>));
}

#[inline(always)]
unsafe fn round<S: Simd>(qkv: Rows<'_>, turns: Turns<'_>, strips: &RowsMut<'_>) {
    let (dim, wide) = (turns.dim, turns.dim.next_multiple_of(SIDE));
    for row in 0..qkv.rows() {
        for head in 0..qkv.width() / dim {
            let scale = if head * dim < turns.hidden {
                turns.scale()
            } else {
                1.0
            };
            for at in (0..wide).step_by(S::LANES) {
                unsafe {
                    let from = qkv.at(row).wrapping_add(head * dim + at);
                    let value = S::load_some(from, dim.saturating_sub(at).min(S::LANES));
                    let value = S::mul(value, S::splat(scale));
                    S::store_bf16(strips.half(row, head * wide + at), value);
                }
            }
        }
    }
}
