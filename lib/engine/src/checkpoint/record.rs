//! What the provenance of an unfinished output says of its batches.
//!
//! It is that of the output with options more: which batches the file holds, and which of their sequences got no vectors.

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

/// A block that is encoded and written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) batches: Range<u64>,
    pub(crate) row_groups: usize,
    pub(crate) rejected: Vec<Rejected>,
}

/// A sequence that got no vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rejected {
    ordinal: u64,
    start: u32,
    pub(crate) reason: Reason,
}

impl Rejected {
    /// The row of the output that row `row` of a batch would have given.
    pub(crate) fn new(batch: &Batch, row: usize, reason: Reason) -> Self {
        let (ordinal, start) = batch.key(row);
        Self {
            ordinal,
            start,
            reason,
        }
    }

    /// The key of that row.
    pub(crate) fn key(&self) -> (u64, u32) {
        (self.ordinal, self.start)
    }

    /// Whether memory ran out or workers were lost: the next run may fare better.
    pub(crate) fn deserves_another_try(&self) -> bool {
        matches!(self.reason, Reason::OutOfMemory | Reason::WorkerLost)
    }
}

/// The provenance of an unfinished output of these blocks.
pub(crate) fn provenance_of_blocks(provenance: &Provenance, blocks: &[Block]) -> Provenance {
    provenance.clone().with(BLOCKS, json!(blocks))
}

/// Takes the blocks out of the provenance of an unfinished output.
pub(crate) fn take_blocks(found: &mut Provenance) -> Option<Vec<Block>> {
    let blocks = found.options.remove(BLOCKS).unwrap_or_default();
    serde_json::from_value(blocks).ok()
}

/// The provenance of a part of these batches, in which these sequences got no vectors.
pub(crate) fn provenance_of_part<'r>(
    provenance: &Provenance,
    batches: &Range<u64>,
    rejected: impl Iterator<Item = &'r Rejected>,
) -> Provenance {
    let rejected: Vec<&Rejected> = rejected.collect();
    let provenance = provenance.clone();
    provenance
        .with(BATCHES, json!([batches.start, batches.end]))
        .with(REJECTED, json!(rejected))
}

/// Takes the batches and the rejected sequences out of the provenance of a part.
pub(crate) fn take_part(found: &mut Provenance) -> Option<(Range<u64>, Vec<Rejected>)> {
    let mut option = |name: &str| found.options.remove(name).unwrap_or_default();
    let (start, end) = serde_json::from_value::<(u64, u64)>(option(BATCHES)).ok()?;
    let rejected = serde_json::from_value(option(REJECTED)).ok()?;
    (start < end).then_some((start..end, rejected))
}

/// How the work of `found`, which lies at `path`, differs from that of `provenance`, if it does. Work of other kernels is of no
/// use: the output is to be the one that an uninterrupted run would make, to the byte.
pub(crate) fn difference(
    path: &Path,
    found: &Provenance,
    provenance: &Provenance,
) -> Result<Option<String>, StoreError> {
    if let Some(difference) = found.difference(provenance) {
        return Ok(Some(difference));
    }
    let kernels = |work: &Provenance| work.options.get(KERNELS).cloned().unwrap_or_default();
    let [there, here] = [found, provenance].map(kernels);
    if there == here {
        return Ok(None);
    }
    let what = format!("computed by the kernels {there}, and this run's are {here}");
    Err(malformed(path, &what))
}

pub(crate) fn malformed(path: &Path, what: &str) -> StoreError {
    StoreError::Malformed {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}
