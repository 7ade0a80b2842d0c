//! A part: an embeddings file with the results of consecutive batches of an incomplete block. No protein has windows both inside
//! and outside a part.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use plmkit_contract::{Provenance, Reject, ordinals};
use plmkit_store::{EmbeddingsReader, StoreError};

use super::record::{Block, check_kernels, malformed, take_blocks};
use crate::batch::{Batch, BatchResult};

/// A part of an earlier run. Its rows are not verified yet.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) block: Block,
}

impl Part {
    /// Reads the metadata of a part, and compares it with the `provenance` of the output. The inner error is how other work differs.
    pub(crate) fn open(
        path: &Path,
        provenance: &Provenance,
    ) -> Result<Result<Self, String>, StoreError> {
        let mut found = EmbeddingsReader::open(path)?.provenance().clone();
        let blocks = take_blocks(&mut found).map(<[Block; 1]>::try_from);
        let Some(Ok([block])) = blocks else {
            return Err(malformed(path, "not a part of a run"));
        };
        if let Some(difference) = found.difference(provenance) {
            return Ok(Err(difference));
        }
        check_kernels(path, &found, provenance)?;
        let path = path.to_owned();
        Ok(Ok(Self { path, block }))
    }

    /// Reads and verifies the results of `batches`, the batches of the part.
    pub(crate) fn read(&self, batches: &[Batch]) -> Result<Vec<BatchResult>, StoreError> {
        let mut reader = EmbeddingsReader::open(&self.path)?;
        let mut all = Vec::new();
        while let Some(rows) = reader.next_batch()? {
            all.push(rows);
        }
        let all = concat_batches(reader.schema(), &all)
            .map_err(|error| malformed(&self.path, &error.to_string()))?;
        let mut places = keys(&all).zip(0..).collect();
        let rejected = self.block.rejected.iter();
        let rejected = rejected.map(|row| ((row.ordinal, row.start.unwrap_or(0)), row));
        let rejected = rejected.collect();
        let results = batches.iter();
        let results = results.map(|batch| result(batch, &all, &rejected, &mut places));
        let results: Option<Vec<BatchResult>> = results.collect();
        results
            .filter(|_| places.is_empty())
            .ok_or_else(|| malformed(&self.path, "its rows are not those of its batches"))
    }
}

/// Returns the result of `batch`, and removes its rows from `places`, the index in `all` of each key.
fn result(
    batch: &Batch,
    all: &RecordBatch,
    rejected: &BTreeMap<(u64, u32), &Reject>,
    places: &mut HashMap<(u64, u32), u32>,
) -> Option<BatchResult> {
    let mut own_rejected = Vec::new();
    let mut kept = Vec::new();
    for row in batch.output_rows() {
        let key = batch.key(row);
        match rejected.get(&key) {
            Some(&reject) => own_rejected.push(reject.clone()),
            None => kept.push(places.remove(&key)?),
        }
    }
    Some(BatchResult {
        rows: take_record_batch(all, &UInt32Array::from(kept)).ok()?,
        rejected: own_rejected,
        stats: None,
    })
}

/// Ordinal and start of each row.
pub(crate) fn keys(rows: &RecordBatch) -> impl Iterator<Item = (u64, u32)> {
    let ordinals = ordinals(rows);
    let starts = rows["start"].as_primitive::<UInt32Type>().values();
    ordinals.iter().copied().zip(starts.iter().copied())
}
