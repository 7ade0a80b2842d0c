//! The provenance of unfinished outputs: that of the output, with options that list the batches in the file and the sequences
//! without vectors.

use std::ops::Range;
use std::path::Path;

use plmkit_contract::{KERNELS, Provenance, Reason};
use plmkit_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::batch::Batch;

/// The option that lists the blocks of an unfinished output.
const BLOCKS: &str = "blocks";
/// The options of a part.
const BATCHES: &str = "batches";
const REJECTED: &str = "rejected";

/// Why a checkpoint with a [retryable](Rejected::is_retryable) sequence is not used.
pub(crate) const RETRYABLE: &str = "has sequences for which memory ran out or workers were lost";

/// A block that is encoded and written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) batches: Range<u64>,
    pub(crate) row_groups: usize,
    pub(crate) rejected: Vec<Rejected>,
}

/// A sequence without vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rejected {
    ordinal: u64,
    start: u32,
    pub(crate) reason: Reason,
}

impl Rejected {
    /// Describes the output row that row `row` of a batch would have given.
    pub(crate) fn new(batch: &Batch, row: usize, reason: Reason) -> Self {
        let (ordinal, start) = batch.key(row);
        Self {
            ordinal,
            start,
            reason,
        }
    }

    /// Ordinal and start of the output row.
    pub(crate) fn key(&self) -> (u64, u32) {
        (self.ordinal, self.start)
    }

    /// Whether the next run may succeed: memory ran out, or workers were lost.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self.reason, Reason::OutOfMemory | Reason::WorkerLost)
    }
}

/// Returns the provenance of an unfinished output of these blocks.
pub(crate) fn provenance_of_blocks(provenance: &Provenance, blocks: &[Block]) -> Provenance {
    provenance.clone().with(BLOCKS, json!(blocks))
}

/// Removes the blocks from the provenance of an unfinished output and returns them.
pub(crate) fn take_blocks(found: &mut Provenance) -> Option<Vec<Block>> {
    let blocks = found.options.remove(BLOCKS).unwrap_or_default();
    serde_json::from_value(blocks).ok()
}

/// Returns the provenance of a part of these batches, with its sequences without vectors.
pub(crate) fn provenance_of_part<'r>(
    provenance: &Provenance,
    batches: &Range<u64>,
    rejected: impl Iterator<Item = &'r Rejected>,
) -> Provenance {
    let rejected: Vec<&Rejected> = rejected.collect();
    let part = provenance.clone();
    part.with(BATCHES, json!([batches.start, batches.end]))
        .with(REJECTED, json!(rejected))
}

/// Removes the batches and the rejected sequences from the provenance of a part and returns them.
pub(crate) fn take_part(found: &mut Provenance) -> Option<(Range<u64>, Vec<Rejected>)> {
    let mut option = |name: &str| found.options.remove(name).unwrap_or_default();
    let (start, end) = serde_json::from_value::<(u64, u64)>(option(BATCHES)).ok()?;
    let rejected = serde_json::from_value(option(REJECTED)).ok()?;
    (start < end).then_some((start..end, rejected))
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
