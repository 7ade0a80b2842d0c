//! A part: an embeddings file with the results of consecutive batches of an incomplete block. No protein has windows both inside
//! and outside a part.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use arrow_array::UInt32Array;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
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
    let mut all = Vec::new();
    while let Some(rows) = reader.next_batch()? {
        all.push(rows);
    }
    let all = concat_batches(reader.schema(), &all)
        .map_err(|error| StoreError::malformed(path, error))?;
    let keys = KeyColumns::new(&all);
    let places = keys.rows().map(|row| row.sort_key()).zip(0..);
    let mut places: HashMap<(u64, u32), u32> = places.collect();
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
        let rows = take_record_batch(&all, &UInt32Array::from(kept)).ok()?;
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
