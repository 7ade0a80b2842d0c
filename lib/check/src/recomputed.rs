//! A sample of the rows, computed again, and how near the embeddings are to it.

use std::collections::HashMap;

use plmkit_contract::{Column, Provenance, RowKey};
use serde::Serialize;

/// A sample of the rows, computed again.
#[derive(Debug)]
pub struct Recomputed {
    /// What they were computed by.
    pub made_by: Provenance,
    /// Their columns.
    pub columns: Vec<Column>,
    /// By ordinal and start: a vector for each column.
    rows: HashMap<(u64, u32), Vec<Vec<f32>>>,
}

impl Recomputed {
    /// No rows yet.
    pub fn new(made_by: Provenance, columns: Vec<Column>) -> Self {
        let rows = HashMap::new();
        Self {
            made_by,
            columns,
            rows,
        }
    }

    /// Adds a row with a vector for each column.
    pub fn push(&mut self, key: (u64, u32), vectors: Vec<Vec<f32>>) {
        self.rows.insert(key, vectors);
    }

    /// Returns the vectors of a row.
    pub(crate) fn get(&self, row: &RowKey) -> Option<&Vec<Vec<f32>>> {
        self.rows.get(&row.sort_key())
    }

    /// Returns the place of a column among the vectors of a row.
    pub(crate) fn place(&self, column: Column) -> Option<usize> {
        self.columns.iter().position(|&known| known == column)
    }
}

/// How near the sampled vectors of a column are to the same computed again, over the files so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecomputedAgreement {
    /// The column.
    pub column: Column,
    /// Vectors that were compared.
    pub vectors: usize,
    /// The largest median difference of a file, as a share of the vector's size; null where no difference is a number.
    pub median_difference: Option<f64>,
    /// The largest difference.
    pub max_difference: Option<f64>,
    /// The largest difference that passes, by the dtype of the last file.
    pub tolerance: f64,
}

impl RecomputedAgreement {
    /// Adds that of other files to that of the same column.
    pub(crate) fn add_to(self, all: &mut Vec<Self>) {
        if self.vectors == 0 {
            return;
        }
        let Some(known) = all.iter_mut().find(|known| known.column == self.column) else {
            return all.push(self);
        };
        let largest = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::max);
        *known = Self {
            vectors: known.vectors + self.vectors,
            median_difference: largest(known.median_difference, self.median_difference),
            max_difference: largest(known.max_difference, self.max_difference),
            ..self
        };
    }
}
