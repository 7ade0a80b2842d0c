//! A sample of the rows, computed again.

use std::collections::HashMap;

use plmkit_contract::{Column, Provenance};

/// A sample of the rows, computed again.
#[derive(Debug)]
pub struct Recomputed {
    /// What they were computed by.
    pub made_by: Provenance,
    pub columns: Vec<Column>,
    /// By ordinal and start: a vector for each column.
    pub rows: HashMap<(u64, u32), Vec<Vec<f32>>>,
}

impl Recomputed {
    /// Returns the place of a column among the vectors of a row.
    pub(crate) fn place(&self, column: Column) -> Option<usize> {
        self.columns.iter().position(|&known| known == column)
    }
}
