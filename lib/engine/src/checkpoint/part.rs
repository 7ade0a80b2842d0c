//! A part: an embeddings file with the results of consecutive batches of an incomplete block. No protein has windows both inside
//! and outside a part.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use plmkit_contract::{KeyColumns, Provenance};
use plmkit_store::{EmbeddingsReader, StoreError};

use super::Block;
use crate::batch::Batch;

/// Reads the metadata of the part at `path` of the work with this `provenance`, without its rows. See [`Block::all_of`].
pub(crate) fn open_part(path: &Path, provenance: &Provenance) -> Result<Block, StoreError> {
    let found = EmbeddingsReader::open(path)?.provenance().clone();
    let mut blocks = Block::all_of(path, found, provenance)?;
    let block = blocks.pop().filter(|_| blocks.is_empty());
    block.ok_or_else(|| StoreError::malformed(path, "not a part of a run"))
}

/// Reads and verifies the rows of the part at `path`, which are those of `block`, and gives them to its `batches`.
pub(crate) fn read_part(
    path: &Path,
    block: &Block,
    batches: &mut [Batch],
) -> Result<(), StoreError> {
    let mut reader = EmbeddingsReader::open(path)?;
    // Apart: together, their lists may exceed an array. The first is empty, for a part without rows.
    let mut all = vec![RecordBatch::new_empty(Arc::clone(reader.schema()))];
    let mut places: HashMap<(u64, u32), (usize, usize)> = HashMap::new();
    while let Some(rows) = reader.next_batch()? {
        let keys = KeyColumns::new(&rows);
        let here = (0..).map(|row| (all.len(), row));
        places.extend(keys.rows().map(|row| row.sort_key()).zip(here));
        all.push(rows);
    }
    let all: Vec<&RecordBatch> = all.iter().collect();
    let rejected = block.rejected.iter();
    let rejected: BTreeMap<(u64, u32), _> = rejected
        .map(|row| ((row.ordinal, row.start.unwrap_or(0)), row))
        .collect();
    let rows_of = |batch: &Batch| {
        let (mut own_rejected, mut kept) = (Vec::new(), Vec::new());
        for row in batch.output_rows() {
            let key = batch.key(row);
            match rejected.get(&key) {
                Some(&reject) => own_rejected.push(reject.clone()),
                None => kept.push(places.remove(&key)?),
            }
        }
        let rows = interleave_record_batch(&all, &kept).ok()?;
        Some((rows, own_rejected))
    };
    let results: Option<Vec<_>> = batches.iter().map(rows_of).collect();
    let results = results
        .filter(|_| places.is_empty())
        .ok_or_else(|| StoreError::malformed(path, "its rows are not those of its batches"))?;
    for (batch, (rows, rejected)) in batches.iter_mut().zip(results) {
        batch.finish(rows, rejected);
        batch.saved = true;
    }
    Ok(())
}
