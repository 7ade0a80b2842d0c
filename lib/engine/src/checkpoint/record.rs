//! The provenance of unfinished outputs: that of the output, with an option that lists the blocks in the file. A part is a file of
//! one block.

use std::ops::Range;
use std::path::Path;

use plmkit_contract::{KERNELS, Provenance, Reason, Reject};
use plmkit_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The option that lists the blocks of an unfinished output.
const BLOCKS: &str = "blocks";

/// Why a checkpoint with a [retryable](Block::is_retryable) sequence is not used.
pub(crate) const RETRYABLE: &str = "has sequences for which memory ran out or workers were lost";

/// Consecutive batches that are encoded and written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) batches: Range<u64>,
    /// The row groups in the output; 0 in a part.
    pub(crate) row_groups: usize,
    /// The sequences without vectors.
    pub(crate) rejected: Vec<Reject>,
}

impl Block {
    /// Whether the next run may embed a rejected sequence: memory ran out, or workers were lost.
    pub(crate) fn is_retryable(&self) -> bool {
        let mut reasons = self.rejected.iter().map(|reject| reject.reason);
        reasons.any(|reason| matches!(reason, Reason::OutOfMemory | Reason::WorkerLost))
    }
}

/// Returns the provenance of a file of these blocks.
pub(crate) fn with_blocks(provenance: &Provenance, blocks: &[Block]) -> Provenance {
    provenance.clone().with(BLOCKS, json!(blocks))
}

/// Removes the blocks from the provenance of a file and returns them.
pub(crate) fn take_blocks(found: &mut Provenance) -> Option<Vec<Block>> {
    let blocks = found.options.remove(BLOCKS).unwrap_or_default();
    serde_json::from_value(blocks).ok()
}

/// Checks that the file at `path`, which is of the same work, was computed by the same kernels. Otherwise the output would not be
/// that of an uninterrupted run, to the byte.
pub(crate) fn check_kernels(
    path: &Path,
    found: &Provenance,
    provenance: &Provenance,
) -> Result<(), StoreError> {
    let kernels = |work: &Provenance| work.options.get(KERNELS).cloned().unwrap_or_default();
    let [found, expected] = [found, provenance].map(kernels);
    if found == expected {
        return Ok(());
    }
    let what = format!("computed by the kernels {found}, and this run's are {expected}");
    Err(malformed(path, &what))
}

pub(crate) fn malformed(path: &Path, what: &str) -> StoreError {
    StoreError::Malformed {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}
