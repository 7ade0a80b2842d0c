//! Whether equal sequences have equal vectors, and different sequences different ones.
//!
//! Rows are sampled by a hash, so that all copies of a sequence are in the sample or none is. So the memory is fixed, and
//! the samples of two files can be compared.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use plmkit_contract::{Column, Pooling, RowKey};
use serde::{Deserialize, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::check::Tally;
use crate::tolerance::Tolerance;
use crate::violation::Place;

/// Sequences, and vectors, that are kept of one column: below this number all are.
const KEPT: usize = 1 << 16;

/// Dimensions that stand for a vector when equal sequences are compared.
const DIMENSIONS: usize = 8;

/// How many times more than the tolerance of two computations vectors of equal sequences may differ in [`DIMENSIONS`]: the root mean
/// square, as a share of that of all dimensions.
const MAX_DIFFERENCE: f64 = 8.0;

/// The sampled rows of one column.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sequences {
    /// By the digest of the sequence.
    by_sequence: HashSample<Sampled>,
    /// The digest of the sequence by the hash of the vector.
    by_vector: HashSample<(u64, u64)>,
}

/// A row with a sequence that was not there before.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sampled {
    ordinal: u64,
    /// The vector in the sampled dimensions.
    values: [f32; DIMENSIONS],
    /// The largest difference, root mean square.
    most: f32,
}

/// The values of a map whose hashes are below a limit, which falls as the map fills.
#[derive(Debug, Serialize, Deserialize)]
struct HashSample<T> {
    limit: u64,
    #[serde(serialize_with = "sorted", bound(serialize = "T: Serialize"))]
    rows: HashMap<u64, T>,
}

/// Writes rows in an order that does not change from run to run.
fn sorted<T: Serialize, S: Serializer>(
    rows: &HashMap<u64, T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(rows.iter().collect::<BTreeMap<_, _>>())
}

impl<T> Default for HashSample<T> {
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            rows: HashMap::new(),
        }
    }
}

impl<T: Copy> HashSample<T> {
    /// Keeps a value for a hash; returns the one that is there already.
    fn insert(&mut self, hash: u64, value: T) -> Option<T> {
        if hash > self.limit {
            return None;
        }
        match self.rows.entry(hash) {
            Entry::Occupied(known) => return Some(*known.get()),
            Entry::Vacant(free) => free.insert(value),
        };
        if self.rows.len() > KEPT {
            self.lower(self.limit / 2);
        }
        None
    }

    /// What is kept, in an order that does not change from run to run.
    fn sorted_by_key(self, key: impl Fn(&T) -> u64) -> Vec<(u64, T)> {
        let mut rows: Vec<(u64, T)> = self.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(hash, value)| (key(value), *hash));
        rows
    }

    /// Lowers both limits to the smaller.
    fn lower_to_same(&mut self, other: &mut Self) {
        let limit = self.limit.min(other.limit);
        self.lower(limit);
        other.lower(limit);
    }

    fn lower(&mut self, limit: u64) {
        if limit < self.limit {
            self.limit = limit;
            self.rows.retain(|&hash, _| hash <= limit);
            self.rows.shrink_to_fit();
        }
    }
}

fn sampled_dimensions(vector: &[f32]) -> [f32; DIMENSIONS] {
    std::array::from_fn(|i| vector[(2 * i + 1) * vector.len() / (2 * DIMENSIONS)])
}

impl Sampled {
    fn differs(&self, other: &Self) -> bool {
        let pairs = self.values.iter().zip(&other.values);
        let squares = pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        (squares.sum::<f64>() / DIMENSIONS as f64).sqrt() > f64::from(self.most)
    }
}

impl Sequences {
    /// Adds a row with a finite vector that is not zero. `size` is the norm by which a difference is measured.
    pub(crate) fn add(
        &mut self,
        column: Column,
        row: &RowKey,
        vector: &[f32],
        size: f64,
        (exact, tolerance): (bool, Tolerance),
        tally: &mut Tally,
    ) {
        let sequence = row.digest.hash();
        let sampled = Sampled {
            ordinal: row.ordinal,
            values: sampled_dimensions(vector),
            most: (MAX_DIFFERENCE * (tolerance.of_each(column) + tolerance.rounding) * size
                / (vector.len() as f64).sqrt()) as f32,
        };
        self.add_sequence(column, sequence, sampled, row.into(), tally);
        // Of nearly the same sequences, what `<cls>` sees and the largest values may be the same, and in low precision the mean.
        if exact && matches!(column, Column::Pooled { pool, .. } if pool == Pooling::Mean) {
            let hash = xxh3_64(bytemuck::cast_slice(vector));
            self.add_vector(column, hash, (sequence, row.ordinal), row.into(), tally);
        }
    }

    fn add_sequence(
        &mut self,
        column: Column,
        sequence: u64,
        sampled: Sampled,
        place: Place<'_>,
        tally: &mut Tally,
    ) {
        let Some(known) = self.by_sequence.insert(sequence, sampled) else {
            return;
        };
        tally.count("repeated", 1);
        if sampled.differs(&known) {
            let first = known.ordinal;
            let problem = format_args!(
                "{column}: not the vector of ordinal {first}, which has the same residues"
            );
            tally.add("different", place, problem);
        }
    }

    fn add_vector(
        &mut self,
        column: Column,
        hash: u64,
        (sequence, ordinal): (u64, u64),
        place: Place<'_>,
        tally: &mut Tally,
    ) {
        let known = self.by_vector.insert(hash, (sequence, ordinal));
        if let Some((_, first)) = known.filter(|&(known, _)| known != sequence) {
            let problem =
                format_args!("{column}: the vector of ordinal {first}, which has other residues");
            tally.add("same_vector", place, problem);
        }
    }

    /// Adds the rows of another file, and compares them.
    pub(crate) fn merge(&mut self, column: Column, mut other: Self, tally: &mut Tally) {
        self.by_sequence.lower_to_same(&mut other.by_sequence);
        self.by_vector.lower_to_same(&mut other.by_vector);
        for (sequence, sampled) in other.by_sequence.sorted_by_key(|sampled| sampled.ordinal) {
            let place = sampled.ordinal.into();
            self.add_sequence(column, sequence, sampled, place, tally);
        }
        for (hash, value) in other.by_vector.sorted_by_key(|&(_, ordinal)| ordinal) {
            self.add_vector(column, hash, value, value.1.into(), tally);
        }
    }
}
