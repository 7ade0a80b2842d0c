//! What is asked of a model for a batch.

use plmkit_contract::{Column, Dtype};
use serde::{Deserialize, Serialize};

/// What a forward pass computes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Pass {
    pub columns: Vec<Column>,
    /// The number of layers that the columns need.
    pub depth: usize,
    /// The type of the computation.
    pub dtype: Dtype,
}
