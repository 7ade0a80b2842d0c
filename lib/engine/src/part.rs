//! A part: the results of some consecutive batches of a block that is not complete, in an embeddings file of their own. It holds
//! whole proteins: it begins and ends where none has windows on both sides.
//!
//! Its provenance is that of the output and two options more: the batches, and the sequences that got no vectors.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::{AsArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::UInt32Type;
use plmkit_contract::{KERNELS, Provenance, Reason, ordinals};
use plmkit_store::{EmbeddingsReader, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::plan::Job;

const BATCHES: &str = "batches";
const REJECTED: &str = "rejected";

/// A sequence that got no vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rejected {
    ordinal: u64,
    start: u32,
    reason: Reason,
}

impl Rejected {
    /// The row of the output that row `row` of a pack would have given.
    pub(crate) fn of(job: &Job, (row, reason): (usize, Reason)) -> Self {
        let (ordinal, start) = job.key(row);
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

    /// Why there is none.
    pub(crate) fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether memory ran out or workers were lost: the next run may fare better.
    pub(crate) fn deserves_another_try(&self) -> bool {
        matches!(self.reason, Reason::OutOfMemory | Reason::WorkerLost)
    }
}

/// The provenance of a part of these batches, in which these sequences got no vectors.
pub(crate) fn of_batches<'r>(
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

/// The results of one batch, as an earlier run computed them.
#[derive(Debug)]
pub(crate) struct SavedRows {
    pub(crate) rows: RecordBatch,
    /// The sequences that have no vectors, rising.
    pub(crate) rejected: Vec<(usize, Reason)>,
}

impl Part {
    /// Reads the metadata of a part of the output `provenance`.
    pub(crate) fn open(path: &Path, provenance: &Provenance) -> Result<Opened, StoreError> {
        let mut found = EmbeddingsReader::open(path)?.provenance().clone();
        let mut option = |name: &str| found.options.remove(name).unwrap_or_default();
        let batches = serde_json::from_value::<(u64, u64)>(option(BATCHES));
        let rejected = serde_json::from_value::<Vec<Rejected>>(option(REJECTED));
        let (Ok((start, end)), Ok(rejected)) = (batches, rejected) else {
            return Err(malformed(path, "not a part of a run"));
        };
        if start >= end {
            return Err(malformed(path, "a part of no batches"));
        }
        if let Some(difference) = difference(path, &found, provenance)? {
            return Ok(Opened::Other(difference));
        }
        Ok(Opened::Same(Self {
            path: path.to_owned(),
            batches: start..end,
            rejected: rejected.into_iter().map(|row| (row.key(), row)).collect(),
        }))
    }

    /// Whether one of its sequences may fare better in the next run.
    pub(crate) fn deserves_another_try(&self) -> bool {
        self.rejected.values().any(Rejected::deserves_another_try)
    }

    /// Reads and verifies the results of `jobs`, which are the part's batches.
    pub(crate) fn read(&self, jobs: &[Job]) -> Result<Vec<SavedRows>, StoreError> {
        let mut reader = EmbeddingsReader::open(&self.path)?;
        let mut batches = Vec::new();
        while let Some(batch) = reader.next_batch()? {
            batches.push(batch);
        }
        let all = concat_batches(reader.schema(), &batches)
            .map_err(|error| malformed(&self.path, &error.to_string()))?;
        let mut places = keys(&all).zip(0..).collect();
        let saved: Option<Vec<SavedRows>> = jobs
            .iter()
            .map(|job| self.saved(job, &all, &mut places))
            .collect();
        saved
            .filter(|_| places.is_empty())
            .ok_or_else(|| malformed(&self.path, "its rows are not those of its batches"))
    }

    /// The rows of `job`. They are taken out of `places`, which says where each row is in `all`: rows of a block are sorted.
    fn saved(
        &self,
        job: &Job,
        all: &RecordBatch,
        places: &mut HashMap<(u64, u32), u32>,
    ) -> Option<SavedRows> {
        let mut rejected = Vec::new();
        let mut kept = Vec::new();
        for row in job.output_rows() {
            let key = job.key(row);
            match self.rejected.get(&key) {
                Some(found) => rejected.push((row, found.reason())),
                None => kept.push(places.remove(&key)?),
            }
        }
        let rows = take_record_batch(all, &UInt32Array::from(kept)).ok()?;
        Some(SavedRows { rows, rejected })
    }
}

/// Ordinal and start of each row.
pub(crate) fn keys(rows: &RecordBatch) -> impl Iterator<Item = (u64, u32)> {
    let ordinals = ordinals(rows);
    let starts = rows["start"].as_primitive::<UInt32Type>().values();
    ordinals.iter().copied().zip(starts.iter().copied())
}

pub(crate) fn malformed(path: &Path, what: &str) -> StoreError {
    StoreError::Malformed {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}
