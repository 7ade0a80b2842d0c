//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864).
//!
//! Channels that are rotated together are neighbours.

use std::f32::consts::LOG2_E;

use crate::simd::dispatch::dispatch;
use crate::simd::{Pair, Simd};
use crate::{Isa, RowsMut};

/// The rotations of positions from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rotations {
    /// `(head_dim/2)`
    inv_freq: Vec<f32>,
    /// `(positions, 2, head_dim)`: for each pair of channels the cosine twice, then minus the sine and the sine.
    turns: Vec<f32>,
}

impl Rotations {
    /// Computes the rotations of `positions` positions with frequencies `(head_dim/2)`. Angles are exact. Rounded to f32, those of
    /// ESMC-300M, whose frequencies have all their bits, would alone move its vectors by 6e-7 at 400 residues.
    pub fn new(inv_freq: &[f32], positions: usize) -> Self {
        let mut turns = Vec::with_capacity(positions * 4 * inv_freq.len());
        for position in 0..positions {
            let angles = inv_freq
                .iter()
                .map(|&frequency| position as f64 * f64::from(frequency));
            turns.extend(angles.clone().flat_map(|angle| [angle.cos() as f32; 2]));
            turns.extend(angles.flat_map(|angle| [-angle.sin() as f32, angle.sin() as f32]));
        }
        Self {
            inv_freq: inv_freq.to_vec(),
            turns,
        }
    }

    /// Whether the rotations have these frequencies. Compares bits, so that NaN is equal to itself.
    pub fn are_of(&self, inv_freq: &[f32]) -> bool {
        let own = self.inv_freq.iter().map(|value| value.to_bits());
        own.eq(inv_freq.iter().map(|value| value.to_bits()))
    }

    /// Returns the number of positions.
    pub fn positions(&self) -> usize {
        self.turns.len() / (4 * self.inv_freq.len()).max(1)
    }

    /// Rotates queries and keys in place. `rows`, `(rows, 3·heads·head_dim)`, are queries, keys and values; row `i` has the
    /// position `positions[i]`.
    pub fn apply(&self, isa: Isa, rows: &mut RowsMut<'_>, positions: &[u32]) {
        let head_dim = 2 * self.inv_freq.len();
        assert_eq!(rows.rows(), positions.len(), "each row has a position");
        assert!(rows.width().is_multiple_of(3 * head_dim), "heads are whole");
        let last = positions.iter().max().map_or(0, |&last| last as usize + 1);
        assert!(last <= self.positions(), "there are so many positions");
        let turns = self;
        dispatch!(isa, apply(turns: &Rotations, rows: &mut RowsMut<'_>, positions: &[u32]));
    }
}

/// What becomes of queries, keys and values, `(rows, 3·heads·dim)`, before they are rounded for attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turns<'a> {
    /// Of queries and keys, if they are not turned yet.
    pub(crate) rotations: Option<&'a Rotations>,
    /// `(rows)`
    pub(crate) positions: &'a [u32],
    /// The channels of a head: a multiple of 32 if there are rotations.
    pub(crate) dim: usize,
    /// The columns of queries, which are scaled.
    pub(crate) hidden: usize,
}

/// The same of 32 columns and some rows.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The cosines of the columns at position 0; null if nothing turns.
    cosines: *const f32,
    dim: usize,
    positions: *const u32,
    scale: f32,
}

impl Turns<'_> {
    /// Returns the factor of queries: scores are exponents of 2.
    pub(crate) fn scale(&self) -> f32 {
        LOG2_E / (self.dim as f32).sqrt()
    }

    /// Returns what becomes of 32 columns of rows from `row` on.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize, column: usize) -> Turn {
        let turning = self.rotations.filter(|_| column < 2 * self.hidden);
        Turn {
            cosines: turning.map_or(std::ptr::null(), |rotations| {
                rotations.turns.as_ptr().wrapping_add(column % self.dim)
            }),
            dim: self.dim,
            positions: self.positions.as_ptr().wrapping_add(row),
            scale: if column < self.hidden {
                self.scale()
            } else {
                1.0
            },
        }
    }
}

impl Turn {
    /// Turns two vectors of columns of the `i`th row.
    ///
    /// # Safety
    /// The row has a position, of which there are rotations; as for [`Simd`].
    #[inline(always)]
    pub(crate) unsafe fn apply<S: Simd>(&self, i: usize, mut columns: [S::V; 2]) -> [S::V; 2] {
        unsafe {
            if !self.cosines.is_null() {
                let position = *self.positions.add(i) as usize;
                let cosines = self.cosines.add(position * 2 * self.dim);
                for (at, v) in columns.iter_mut().enumerate() {
                    let cosines = cosines.add(at * S::LANES);
                    *v = turn::<S>(*v, cosines, cosines.add(self.dim));
                }
            }
            let scale = S::splat(self.scale);
            [S::mul(columns[0], scale), S::mul(columns[1], scale)]
        }
    }
}

#[inline(always)]
unsafe fn apply<S: Simd>(turns: &Rotations, rows: &mut RowsMut<'_>, positions: &[u32]) {
    let head_dim = 2 * turns.inv_freq.len();
    let whole = head_dim / S::LANES * S::LANES;
    let heads = rows.width() / 3 * 2 / head_dim;
    for (row, &position) in positions.iter().enumerate() {
        unsafe {
            let cosines = turns.turns.as_ptr().add(position as usize * 2 * head_dim);
            let sines = cosines.add(head_dim);
            for head in 0..heads {
                let channels = rows.at(row).add(head * head_dim);
                rotate::<S>(channels, cosines, sines, 0..whole);
                rotate::<Pair>(channels, cosines, sines, whole..head_dim);
            }
        }
    }
}

#[inline(always)]
unsafe fn rotate<S: Simd>(
    channels: *mut f32,
    cosines: *const f32,
    sines: *const f32,
    range: std::ops::Range<usize>,
) {
    unsafe {
        for at in range.step_by(S::LANES) {
            let v = S::load(channels.add(at));
            let v = turn::<S>(v, cosines.add(at), sines.add(at));
            S::store(channels.add(at), v);
        }
    }
}

#[inline(always)]
unsafe fn turn<S: Simd>(v: S::V, cosines: *const f32, sines: *const f32) -> S::V {
    unsafe {
        let crossed = S::mul(S::swap_pairs(v), S::load(sines));
        S::mul_add(v, S::load(cosines), crossed)
    }
}
