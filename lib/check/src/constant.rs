//! Whether every dimension of a vector column changes.

use std::collections::HashSet;

use plmkit_contract::{Column, RowKey};

use crate::check::Tallies;
use crate::checks::constant;
use crate::violation::FILE;

/// Sequences that a file needs before a dimension that never changes is a fault.
const MIN_VARYING: usize = 16;

/// Which dimensions of a column change in a file.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    vectors: u64,
    /// Digests of different sequences, as many as [`MIN_VARYING`] at most.
    sequences: HashSet<u64>,
    first: Vec<f32>,
    /// Bits in which a value has differed from the first: `(dim)`.
    changed_bits: Vec<u32>,
    have_all_changed: bool,
}

impl Changes {
    /// Adds a vector that is finite and not zero. Returns how many of its values are zero.
    pub(crate) fn add(&mut self, row: &RowKey, vector: &[f32]) -> usize {
        self.vectors += 1;
        if self.sequences.len() < MIN_VARYING {
            self.sequences.insert(row.digest.hash());
        }
        if self.vectors == 1 {
            self.first = vector.to_vec();
            self.changed_bits = vec![0; vector.len()];
        }
        if !self.have_all_changed {
            let firsts = self.first.iter().zip(vector);
            for (changed, (first, value)) in self.changed_bits.iter_mut().zip(firsts) {
                *changed |= value.to_bits() ^ first.to_bits();
            }
            self.have_all_changed = !self.changed_bits.contains(&0);
        }
        // A sum that may wrap takes whole registers.
        let is_zero = |value: &f32| u32::from(*value == 0.0);
        vector.iter().map(is_zero).fold(0, u32::wrapping_add) as usize
    }

    /// Lists the dimensions that never change. In other types than f32, a large value that hardly changes has one rounding.
    pub(crate) fn list_constant(
        &self,
        column: Column,
        file: &str,
        exact: bool,
        tallies: &mut Tallies,
    ) {
        if self.sequences.len() < MIN_VARYING {
            return;
        }
        tallies.count(constant::columns, 1);
        let dimensions = self.changed_bits.iter().enumerate();
        let dimensions =
            dimensions.filter(|&(d, &changed)| changed == 0 && (exact || self.first[d] == 0.0));
        for (d, _) in dimensions {
            let (value, vectors) = (self.first[d], self.vectors);
            let problem = format_args!(
                "{file}: {column} is {value} in dimension {d} of all {vectors} vectors"
            );
            tallies.add(constant::constant, FILE, problem);
        }
    }
}
