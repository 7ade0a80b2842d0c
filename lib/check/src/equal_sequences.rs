//! Whether equal sequences have equal vectors, and different sequences different ones.
//!
//! Rows are sampled by a hash, so that all copies of a sequence are in the sample or none is. So the memory is fixed, and
//! the samples of two files can be compared.

use std::collections::BTreeMap;

use plmkit_contract::{Column, Pooling, RowKey};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::check::Tallies;
use crate::checks::sequences;
use crate::tolerance::Tolerance;
use crate::violation::Violation;

/// Sequences, and vectors, that are kept of one column: below this number all are.
const KEPT: usize = 1 << 16;

/// Dimensions that stand for a vector when equal sequences are compared.
const DIMENSIONS: usize = 8;

/// How many times more than the tolerance of two computations vectors of equal sequences may differ in [`DIMENSIONS`]: the root mean
/// square, as a share of that of all dimensions.
const MAX_DIFFERENCE: f64 = 8.0;

/// The sampled rows of one column.
#[derive(Debug, Default)]
pub(crate) struct EqualSequences {
    /// By the digest of the sequence.
    by_sequence: Smallest<Sampled>,
    /// The digest of the sequence, and the ordinal, by the hash of the vector.
    by_vector: Smallest<(u64, u64)>,
}

/// A row with a sequence that was not there before.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    ordinal: u64,
    /// The vector in the sampled dimensions.
    values: [f32; DIMENSIONS],
    /// The largest difference, root mean square.
    most: f32,
}

/// The values of the smallest hashes, [`KEPT`] at most.
#[derive(Debug)]
struct Smallest<T> {
    limit: u64,
    rows: BTreeMap<u64, T>,
}

impl<T> Default for Smallest<T> {
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            rows: BTreeMap::new(),
        }
    }
}

impl<T: Copy> Smallest<T> {
    /// Keeps a value for a hash; returns the one that is there already.
    fn insert(&mut self, hash: u64, value: T) -> Option<T> {
        if hash > self.limit {
            return None;
        }
        if let Some(known) = self.rows.get(&hash) {
            return Some(*known);
        }
        self.rows.insert(hash, value);
        if self.rows.len() > KEPT
            && let Some((last, _)) = self.rows.pop_last()
        {
            self.limit = last;
        }
        None
    }
}

impl Sampled {
    fn differs(&self, other: &Self) -> bool {
        let pairs = self.values.iter().zip(&other.values);
        let squares = pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        (squares.sum::<f64>() / DIMENSIONS as f64).sqrt() > f64::from(self.most)
    }
}

impl EqualSequences {
    /// Adds a row with a finite vector that is not zero. `size` is the norm by which a difference is measured.
    pub(crate) fn add(
        &mut self,
        column: Column,
        row: &RowKey,
        vector: &[f32],
        size: f64,
        tolerance: Tolerance,
        tallies: &mut Tallies,
    ) {
        let sequence = row.digest.hash();
        let most = MAX_DIFFERENCE * (tolerance.of_each(column) + tolerance.rounding) * size
            / (vector.len() as f64).sqrt();
        let sampled = Sampled {
            ordinal: row.ordinal,
            values: std::array::from_fn(|i| vector[(2 * i + 1) * vector.len() / (2 * DIMENSIONS)]),
            most: most as f32,
        };
        self.add_sequence(column, sequence, sampled, row, tallies);
        // Of nearly the same sequences, what `<cls>` sees and the largest values may be the same, and in low precision the mean.
        if tolerance.is_exact
            && matches!(column, Column::Pooled { pool, .. } if pool == Pooling::Mean)
        {
            // No two vectors have the same norm, to the last bit, and the same values in these dimensions, but equal ones.
            let hash = xxh3_64_with_seed(bytemuck::cast_slice(&sampled.values), size.to_bits());
            self.add_vector(column, hash, sequence, row.ordinal, row, tallies);
        }
    }

    fn add_sequence(
        &mut self,
        column: Column,
        sequence: u64,
        sampled: Sampled,
        place: impl Into<Violation>,
        tallies: &mut Tallies,
    ) {
        let Some(known) = self.by_sequence.insert(sequence, sampled) else {
            return;
        };
        tallies.count(sequences::repeated, 1);
        if sampled.differs(&known) {
            let first = known.ordinal;
            let problem = format_args!(
                "{column}: not the vector of ordinal {first}, which has the same residues"
            );
            tallies.add(sequences::different, place, problem);
        }
    }

    fn add_vector(
        &mut self,
        column: Column,
        hash: u64,
        sequence: u64,
        ordinal: u64,
        place: impl Into<Violation>,
        tallies: &mut Tallies,
    ) {
        let known = self.by_vector.insert(hash, (sequence, ordinal));
        if let Some((_, first)) = known.filter(|&(known, _)| known != sequence) {
            let problem =
                format_args!("{column}: the vector of ordinal {first}, which has other residues");
            tallies.add(sequences::same_vector, place, problem);
        }
    }

    /// Adds the rows of another file to those of the same column, and compares them.
    pub(crate) fn add_to(
        self,
        all: &mut Vec<(Column, Self)>,
        column: Column,
        tallies: &mut Tallies,
    ) {
        let Some((_, known)) = all.iter_mut().find(|(known, _)| *known == column) else {
            return all.push((column, self));
        };
        for (sequence, sampled) in self.by_sequence.rows {
            known.add_sequence(column, sequence, sampled, sampled.ordinal, tallies);
        }
        for (hash, value) in self.by_vector.rows {
            known.add_vector(column, hash, value.0, value.1, value.1, tallies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_hashes_are_kept() {
        let mut kept = Smallest::default();
        let hashes = (0..2 * KEPT as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for hash in hashes.clone() {
            assert_eq!(kept.insert(hash, hash), None);
        }
        let mut sorted: Vec<u64> = hashes.collect();
        sorted.sort_unstable();
        assert!(kept.rows.keys().eq(&sorted[..KEPT]));
        assert_eq!(kept.insert(sorted[0], 1), Some(sorted[0]));
        assert_eq!(kept.insert(sorted[KEPT], 1), None);
        assert_eq!(kept.rows.len(), KEPT);
    }
}
