//! A sample of the rows, computed again, and how near the embeddings are to it.

use std::collections::HashMap;

use plmkit_contract::{Column, Provenance, RowKey};
use serde::{Deserialize, Serialize};

use crate::vector::median;

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

/// How near the sampled vectors of a column are to the same computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecomputedAgreement {
    /// The column.
    pub column: Column,
    /// Vectors that were compared.
    pub vectors: usize,
    /// The median difference, as a share of the vector's size; null where no difference is a number.
    pub median_difference: Option<f64>,
    /// The largest.
    pub max_difference: Option<f64>,
    /// The largest difference that passes, by the dtype of the last file.
    pub tolerance: f64,
}

/// The differences of one column, over the files so far.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Differences {
    pub(crate) column: Column,
    pub(crate) tolerance: f64,
    pub(crate) found: Vec<f64>,
}

impl Differences {
    /// Adds the differences to those of the same column.
    pub(crate) fn add_to(self, all: &mut Vec<Self>) {
        if self.found.is_empty() {
            return;
        }
        match all.iter_mut().find(|known| known.column == self.column) {
            Some(known) => {
                known.tolerance = self.tolerance;
                known.found.extend(self.found);
            }
            None => all.push(self),
        }
    }

    pub(crate) fn agreement(&self) -> RecomputedAgreement {
        let finite = self.found.iter().copied().filter(|found| found.is_finite());
        RecomputedAgreement {
            column: self.column,
            vectors: self.found.len(),
            median_difference: median(&mut finite.clone().collect::<Vec<_>>()),
            max_difference: finite.reduce(f64::max),
            tolerance: self.tolerance,
        }
    }
}
