//! A part: the results of some consecutive batches of a block that is not complete, in an embeddings file of their own. It holds
//! whole proteins: it begins and ends where none has windows on both sides.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::UInt32Type;
use plmkit_contract::{Provenance, ordinals};
use plmkit_store::{EmbeddingsReader, StoreError};

use super::record::{Rejected, difference, malformed, take_part};
use crate::batch::{Batch, BatchResult};

/// A part that an earlier run left. Its rows are not verified yet.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) batches: Range<u64>,
    /// By ordinal and start.
    rejected: BTreeMap<(u64, u32), Rejected>,
}

/// What a part's metadata say.
pub(crate) enum Opened {
    /// It belongs to this output.
    Same(Part),
    /// It belongs to other work, in which this is different.
    Other(String),
}

impl Part {
    /// Reads the metadata of a part of the output `provenance`.
    pub(crate) fn open(path: &Path, provenance: &Provenance) -> Result<Opened, StoreError> {
        let mut found = EmbeddingsReader::open(path)?.provenance().clone();
        let Some((batches, rejected)) = take_part(&mut found) else {
            return Err(malformed(path, "not a part of a run"));
        };
        if let Some(difference) = difference(path, &found, provenance)? {
            return Ok(Opened::Other(difference));
        }
        Ok(Opened::Same(Self {
            path: path.to_owned(),
            batches,
            rejected: rejected.into_iter().map(|row| (row.key(), row)).collect(),
        }))
    }

    /// Whether one of its sequences may fare better in the next run.
    pub(crate) fn deserves_another_try(&self) -> bool {
        self.rejected.values().any(Rejected::deserves_another_try)
    }

    /// Reads and verifies the results of `batches`, which are those of the part.
    pub(crate) fn read(&self, batches: &[Batch]) -> Result<Vec<BatchResult>, StoreError> {
        let mut reader = EmbeddingsReader::open(&self.path)?;
        let mut all = Vec::new();
        while let Some(rows) = reader.next_batch()? {
            all.push(rows);
        }
        let all = concat_batches(reader.schema(), &all)
            .map_err(|error| malformed(&self.path, &error.to_string()))?;
        let mut places = keys(&all).zip(0..).collect();
        let results: Option<Vec<BatchResult>> = batches
            .iter()
            .map(|batch| self.result(batch, &all, &mut places))
            .collect();
        results
            .filter(|_| places.is_empty())
            .ok_or_else(|| malformed(&self.path, "its rows are not those of its batches"))
    }

    /// The result of `batch`. Its rows are taken out of `places`, which says where each row is in `all`: rows of a block are sorted.
    fn result(
        &self,
        batch: &Batch,
        all: &RecordBatch,
        places: &mut HashMap<(u64, u32), u32>,
    ) -> Option<BatchResult> {
        let mut rejected = Vec::new();
        let mut kept = Vec::new();
        for row in batch.output_rows() {
            let key = batch.key(row);
            match self.rejected.get(&key) {
                Some(found) => rejected.push((row, found.reason)),
                None => kept.push(places.remove(&key)?),
            }
        }
        let rows = take_record_batch(all, &UInt32Array::from(kept)).ok()?;
        Some(BatchResult {
            rows,
            rejected,
            stats: None,
        })
    }
}

/// Ordinal and start of each row.
pub(crate) fn keys(rows: &RecordBatch) -> impl Iterator<Item = (u64, u32)> {
    let ordinals = ordinals(rows);
    let starts = rows["start"].as_primitive::<UInt32Type>().values();
    ordinals.iter().copied().zip(starts.iter().copied())
}
