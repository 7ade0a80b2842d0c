//! The provenance of checkpoints: that of the output, with an option that lists the blocks in the file.
//!
//! A part is an embeddings file of one block: the results of consecutive batches of an incomplete block of the output. No protein has
//! windows both inside and outside a part.

use std::ops::Range;
use std::path::Path;

use arrow_array::RecordBatch;
use plmkit_contract::{Provenance, Reason, Reject};
use plmkit_store::{EmbeddingsReader, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::batch::ComputedBatch;

/// The option that lists the blocks of a checkpoint.
const BLOCKS: &str = "blocks";

/// Why a checkpoint with a [retryable](OutputBlock::is_retryable) sequence is not used.
pub(crate) const RETRYABLE: &str = "has sequences for which memory ran out";

/// Consecutive batches that are encoded and written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OutputBlock {
    pub(crate) batches: Range<u64>,
    /// The row groups in the output; 0 in a part.
    pub(crate) row_groups: usize,
    /// The sequences without vectors.
    pub(crate) rejected: Vec<Reject>,
}

impl OutputBlock {
    /// Makes the block of `batches`, of which the first is batch `first` of the run.
    pub(crate) fn new(first: u64, batches: &[ComputedBatch], row_groups: usize) -> Self {
        let rejected = batches.iter().flat_map(|batch| &batch.rejected);
        Self {
            batches: first..first + batches.len() as u64,
            row_groups,
            rejected: rejected.cloned().collect(),
        }
    }

    /// Whether the next run may embed a rejected sequence: memory ran out.
    pub(crate) fn is_retryable(&self) -> bool {
        let mut reasons = self.rejected.iter().map(|reject| reject.reason);
        reasons.any(|reason| reason == Reason::OutOfMemory)
    }

    /// Returns the provenance of a file of these blocks.
    pub(crate) fn recorded(blocks: &[Self], provenance: &Provenance) -> Provenance {
        provenance.clone().with(BLOCKS, json!(blocks))
    }

    /// Returns the blocks of the checkpoint at `path`, whose provenance is `found`. If it is of other work, the error is
    /// [`StoreError::Exists`]. It is useless if it was computed by other kernels: the output would not be that of an uninterrupted
    /// run, to the byte.
    pub(crate) fn all_of(
        path: &Path,
        mut found: Provenance,
        provenance: &Provenance,
    ) -> Result<Vec<Self>, StoreError> {
        let blocks = found.options.remove(BLOCKS).unwrap_or_default();
        if let Some(difference) = found.difference(provenance) {
            return Err(StoreError::exists(path, difference));
        }
        if let Some(difference) = found.checkpoint_difference(provenance) {
            return Err(StoreError::malformed(path, &difference));
        }
        serde_json::from_value(blocks)
            .map_err(|_| StoreError::malformed(path, "not the blocks of a run"))
    }
}

/// Reads the metadata of the part at `path` of the work with this `provenance`, without its rows. See [`OutputBlock::all_of`].
pub(crate) fn open_part(path: &Path, provenance: &Provenance) -> Result<OutputBlock, StoreError> {
    let found = EmbeddingsReader::open(path)?.provenance().clone();
    let mut blocks = OutputBlock::all_of(path, found, provenance)?;
    let block = blocks.pop().filter(|_| blocks.is_empty());
    block.ok_or_else(|| StoreError::malformed(path, "not a part of a run"))
}

/// Reads and verifies the rows of the part at `path`.
pub(crate) fn read_part(path: &Path) -> Result<Vec<RecordBatch>, StoreError> {
    let mut reader = EmbeddingsReader::open(path)?;
    let mut all = Vec::new();
    while let Some(rows) = reader.next_batch()? {
        all.push(rows);
    }
    Ok(all)
}
