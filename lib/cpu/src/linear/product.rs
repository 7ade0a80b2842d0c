//! The order of tiles in a product, and the use of their sums.

use std::ops::Range;

use super::{Epilogue, VECTORS, Weights};
use crate::amx::SIDE;
use crate::exp::{COARSE, FINE};
use crate::rope::Turn;
use crate::rows::Target;
use crate::simd::Simd;
use crate::{Rows, RowsMut};
use crate::{activation, cpu};

/// The sums of a tile.
pub(super) type Sums<S, const ROWS: usize> = [[<S as Simd>::V; VECTORS]; ROWS];

/// Multiplies input rows by a panel of weights.
pub(super) trait Multiplier<S: Simd, const ROWS: usize> {
    /// The bytes of an input value in a product.
    const BYTES: usize;
    /// Whether [`tile`](Self::tile) leaves the units idle that finish sums, so that it finishes the tile before meanwhile.
    const LEAVES_VECTORS: bool = false;

    /// Returns how many of the inputs of a product that is added to the output are added at once: as many as stay in a core's cache.
    fn piece(&self, inputs: usize) -> usize {
        inputs
    }

    /// Loads rows of `x`, converted for the product.
    unsafe fn load_rows(&mut self, x: Rows<'_>, range: Range<usize>);

    /// Prepares a panel for [`tile`](Self::tile) with some inputs of so many loaded rows.
    #[inline(always)]
    unsafe fn load_panel(&mut self, _panel: usize, _rows: usize, _inputs: Range<usize>) {}

    /// Replaces the sums by the products of some inputs of a loaded panel with loaded rows. Sums of rows beyond the
    /// last are not used; converted rows have memory for whole tiles. If it [leaves vectors](Self::LEAVES_VECTORS), uses all rows of the
    /// tile before, whose sums these are until then.
    unsafe fn tile(&self, place: Place, sums: *mut Sums<S, ROWS>, before: &Finished<'_, S>);
}

/// A tile of a product.
pub(super) struct Place {
    /// The first row, counted from the first loaded one.
    pub(super) row: usize,
    /// At most those of a whole tile.
    pub(super) rows: usize,
    pub(super) panel: usize,
    pub(super) inputs: Range<usize>,
}

/// Bytes of input rows that stay in a second-level cache of up to 1 MiB while all weights are read. Of a larger one it is half.
const INPUT_BYTES: usize = 448 << 10;

/// Rows that are loaded at once even if they exceed [`INPUT_BYTES`]: each pass over the weights costs memory bandwidth.
const MIN_ROWS: usize = 36;
/// Rows that are loaded at once, and pass through the dense layers together, for products by tiles of AMX: these take less time than
/// reading the weights, which share the second-level cache with what is between layers.
pub(crate) const MOST_AMX_ROWS: usize = 128;

/// Returns the most rows that are loaded at once.
fn max_rows(inputs: usize, bytes: usize, tile: usize) -> usize {
    if tile == SIDE {
        return MOST_AMX_ROWS;
    }
    let large = cpu::level_two_cache().filter(|&cache| cache > 1 << 20);
    let cached = large.map_or(INPUT_BYTES, |cache| cache / 2);
    (cached / bytes / inputs).max(MIN_ROWS) / tile * tile
}

/// Returns the rows of memory for products of up to `rows` rows, in whole tiles.
pub(super) fn room_for(rows: usize, inputs: usize, bytes: usize, tile: usize) -> usize {
    max_rows(inputs, bytes, tile).min(rows.next_multiple_of(tile))
}

/// Multiplies the rows of `x` by the weights and uses the sums as `epilogue` says.
#[inline(always)]
pub(super) unsafe fn products<S: Simd, M: Multiplier<S, ROWS>, const ROWS: usize>(
    mut multiplier: M,
    weights: &Weights,
    x: Rows<'_>,
    out: &mut RowsMut<'_>,
    epilogue: Epilogue<'_>,
) {
    let columns = VECTORS * S::LANES;
    let (rows, inputs) = (x.rows(), weights.inputs);
    let piece = match epilogue {
        Epilogue::Add(_) => multiplier.piece(inputs),
        _ => inputs,
    };
    let most = max_rows(piece, M::BYTES, ROWS);
    let mut sums = [[unsafe { S::splat(0.0) }; VECTORS]; ROWS];
    let bias = sums[0];
    // One buffer for all tiles takes the least room in the first-level cache.
    let sums = &raw mut sums;
    let mut before = Finished {
        weights,
        epilogue,
        sums: sums.cast(),
        bias,
        rows: 0,
        column: 0,
        turn: None,
        to: Target::Halves(std::ptr::null_mut()),
    };
    // Passes of equal size, because each reads all weights.
    let at_once = rows
        .div_ceil(rows.div_ceil(most).max(1))
        .next_multiple_of(ROWS);
    for first in (0..rows).step_by(at_once) {
        let last = rows.min(first + at_once);
        unsafe {
            multiplier.load_rows(x, first..last);
            for begin in (0..inputs).step_by(piece) {
                let end = inputs.min(begin + piece);
                for (panel, column) in (0..weights.outputs).step_by(columns).enumerate() {
                    let bias = weights.bias.as_ptr().add(column);
                    let bias = if end == inputs {
                        [S::load(bias), S::load(bias.add(S::LANES))]
                    } else {
                        [S::splat(0.0); VECTORS]
                    };
                    multiplier.load_panel(panel, last - first, begin..end);
                    for row in (first..last).step_by(ROWS) {
                        let place = Place {
                            row: row - first,
                            rows: ROWS.min(last - row),
                            panel,
                            inputs: begin..end,
                        };
                        let to = if weights.gated {
                            column / VECTORS
                        } else {
                            column
                        };
                        let to = out.target(row, to);
                        if M::LEAVES_VECTORS && matches!(epilogue, Epilogue::Add(_)) {
                            to.prefetch(place.rows);
                        }
                        multiplier.tile(place, sums, &before);
                        before = Finished {
                            bias,
                            rows: ROWS.min(last - row),
                            column,
                            turn: match epilogue {
                                Epilogue::Attend(turns) => Some(turns.at(row, column)),
                                _ => None,
                            },
                            to,
                            ..before
                        };
                        if !M::LEAVES_VECTORS {
                            before.use_rows(0..ROWS);
                        }
                    }
                }
            }
        }
    }
    if M::LEAVES_VECTORS {
        unsafe { before.use_rows(0..ROWS) }
    }
}

/// A tile whose sums are known, and what they are for.
pub(super) struct Finished<'a, S: Simd> {
    weights: &'a Weights,
    epilogue: Epilogue<'a>,
    sums: *const [S::V; VECTORS],
    bias: [S::V; VECTORS],
    rows: usize,
    column: usize,
    turn: Option<Turn>,
    to: Target,
}

impl<S: Simd> Finished<'_, S> {
    /// Uses the sums of some rows; those past the last are not there.
    #[inline(always)]
    pub(super) unsafe fn use_rows(&self, rows: Range<usize>) {
        for i in rows.start..rows.end.min(self.rows) {
            unsafe {
                let [left, right] = *self.sums.add(i);
                let sums = [S::add(left, self.bias[0]), S::add(right, self.bias[1])];
                match self.to {
                    Target::Values(first, width) => self.to_values(first.add(i * width), sums),
                    Target::Halves(first) => self.to_halves(i, first.add(i * SIDE), sums),
                }
            }
        }
    }

    /// Finishes the sums of two vectors of columns of a row of values.
    #[inline(always)]
    unsafe fn to_values(&self, to: *mut f32, sums: [S::V; VECTORS]) {
        unsafe {
            if self.weights.gated {
                S::store(to, S::mul(activation::silu::<S>(sums[0], FINE), sums[1]));
            } else {
                let width = self.weights.outputs - self.column;
                finish_columns::<S>(to, width, sums, self.epilogue);
            }
        }
    }

    /// The same of a row in tiles, to which nothing is added. Activations are as exact as the rounding.
    #[inline(always)]
    unsafe fn to_halves(&self, i: usize, to: *mut u16, sums: [S::V; VECTORS]) {
        unsafe {
            if self.weights.gated {
                S::store_bf16(to, S::mul(activation::silu::<S>(sums[0], COARSE), sums[1]));
            } else if self.epilogue == Epilogue::Gelu {
                S::store_bf16_both(
                    to,
                    activation::coarse_gelu::<S>(sums[0]),
                    activation::coarse_gelu::<S>(sums[1]),
                );
            } else if let Some(turn) = self.turn {
                let [left, right] = turn.apply::<S>(i, sums);
                S::store_bf16_both(to, left, right);
            } else {
                S::store_bf16_both(to, sums[0], sums[1]);
            }
        }
    }
}

/// Finishes the sums of two vectors of columns, of which the first `width` exist.
#[inline(always)]
unsafe fn finish_columns<S: Simd>(
    to: *mut f32,
    width: usize,
    [left, right]: [S::V; VECTORS],
    epilogue: Epilogue<'_>,
) {
    unsafe {
        if width >= VECTORS * S::LANES {
            finish::<S>(to, left, epilogue);
            finish::<S>(to.add(S::LANES), right, epilogue);
        } else {
            let mut edge = [0f32; 64];
            let edge = edge.as_mut_ptr();
            std::ptr::copy_nonoverlapping(to, edge, width);
            finish::<S>(edge, left, epilogue);
            finish::<S>(edge.add(S::LANES), right, epilogue);
            std::ptr::copy_nonoverlapping(edge, to, width);
        }
    }
}

#[inline(always)]
unsafe fn finish<S: Simd>(to: *mut f32, sum: S::V, epilogue: Epilogue<'_>) {
    unsafe {
        let value = match epilogue {
            // Gated weights have both factors of a value, and what attends is in strips: they do not come here.
            Epilogue::Store | Epilogue::SwiGlu | Epilogue::Attend(_) => sum,
            Epilogue::Gelu => activation::gelu::<S>(sum),
            // As exact as an addition if the factor is 1.
            Epilogue::Add(factor) => S::mul_add(sum, S::splat(factor), S::load(to)),
        };
        S::store(to, value);
    }
}
