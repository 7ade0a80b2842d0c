//! Rotary position embedding (Su et al. 2021, arXiv:2104.09864).
//!
//! Channels that are rotated together are neighbours.

use crate::simd::dispatch::dispatch;
use crate::simd::{Pair, Simd};
use crate::{Isa, RowsMut};

/// The rotations of positions from 0.
#[derive(Clone, Debug, Default)]
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
            let crossed = S::mul(S::swap_pairs(v), S::load(sines.add(at)));
            let v = S::mul_add(v, S::load(cosines.add(at)), crossed);
            S::store(channels.add(at), v);
        }
    }
}
