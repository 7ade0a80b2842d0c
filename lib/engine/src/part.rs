//! A part: the results of some consecutive batches, in an embeddings file of their own. It holds whole proteins: it begins
//! and ends where none has windows on both sides.
//!
//! Its provenance is that of the output and two options more: the batches, and the sequences that got no vectors.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{UInt32Type, UInt64Type};
use plmkit_contract::{EmbeddingLayout, KERNELS, Provenance, Reason};
use plmkit_store::{EmbeddingsReader, EmbeddingsWriter, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::Config;
use crate::plan::Job;
use crate::run_folder::RunFolder;

const BATCHES: &str = "batches";
const REJECTED: &str = "rejected";
/// A part is read whole.
const PART_BYTES: usize = 64 << 20;

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
}

/// A part that an earlier run left. Its rows are not verified yet.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) batches: Range<u64>,
    /// By ordinal and start.
    rejected: BTreeMap<(u64, u32), Reason>,
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
        if let Some(difference) = found.difference(provenance) {
            return Ok(Opened::Other(difference));
        }
        let kernels = |work: &Provenance| work.options.get(KERNELS).cloned().unwrap_or_default();
        let [there, here] = [&found, provenance].map(kernels);
        if there != here {
            // The output is to be the one that an uninterrupted run would make, to the byte.
            let what = format!("computed by the kernels {there}, and this run's are {here}");
            return Err(malformed(path, &what));
        }
        Ok(Opened::Same(Self {
            path: path.to_owned(),
            batches: start..end,
            rejected: rejected
                .into_iter()
                .map(|row| ((row.ordinal, row.start), row.reason))
                .collect(),
        }))
    }

    /// Whether memory ran out or workers were lost for one of its sequences: the next run may fare better.
    pub(crate) fn deserves_another_try(&self) -> bool {
        let mut reasons = self.rejected.values();
        reasons.any(|reason| matches!(reason, Reason::OutOfMemory | Reason::WorkerLost))
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
        let mut next = 0;
        let saved: Option<Vec<SavedRows>> = jobs
            .iter()
            .map(|job| self.saved(job, &all, &mut next))
            .collect();
        saved
            .filter(|_| next == all.num_rows())
            .ok_or_else(|| malformed(&self.path, "its rows are not those of its batches"))
    }

    /// The rows of `job`, which begin at row `next` of `all`.
    fn saved(&self, job: &Job, all: &RecordBatch, next: &mut usize) -> Option<SavedRows> {
        let mut rejected = Vec::new();
        let mut kept = Vec::new();
        for row in job.output_rows() {
            let key = job.key(row);
            match self.rejected.get(&key) {
                Some(&reason) => rejected.push((row, reason)),
                None => kept.push(key),
            }
        }
        if *next + kept.len() > all.num_rows() {
            return None;
        }
        let rows = all.slice(*next, kept.len());
        *next += kept.len();
        let ordinals = rows["ordinal"].as_primitive::<UInt64Type>().values();
        let starts = rows["start"].as_primitive::<UInt32Type>().values();
        let found = ordinals.iter().copied().zip(starts.iter().copied());
        found.eq(kept).then_some(SavedRows { rows, rejected })
    }
}

fn malformed(path: &Path, what: &str) -> StoreError {
    StoreError::Malformed {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// Saves results in parts.
pub(crate) struct Saver<'a> {
    folder: &'a RunFolder,
    provenance: &'a Provenance,
    layout: &'a EmbeddingLayout,
    /// How long results may be unsaved.
    every: Duration,
    saved: Instant,
    open: Option<OpenPart>,
    /// The results since a protein was begun that is not finished: a part ends where none is.
    held: Vec<Held>,
}

/// The results of a batch.
struct Held {
    batch: u64,
    rows: RecordBatch,
    rejected: Vec<Rejected>,
}

/// Of the values themselves: what an array of a mapped file or of a message holds on to is the whole of that.
fn bytes(values: &ArrayRef) -> usize {
    let data = values.to_data();
    data.get_slice_memory_size()
        .unwrap_or_else(|_| values.get_array_memory_size())
}

/// A part under construction.
struct OpenPart {
    writer: EmbeddingsWriter,
    batches: Range<u64>,
    rejected: Vec<Rejected>,
    bytes: usize,
}

impl<'a> Saver<'a> {
    /// Saves what belongs to the output `provenance`, which has the columns of `layout`.
    pub(crate) fn new(
        folder: &'a RunFolder,
        provenance: &'a Provenance,
        layout: &'a EmbeddingLayout,
        config: &Config,
    ) -> Self {
        Self {
            folder,
            provenance,
            layout,
            every: config.save_every,
            saved: Instant::now(),
            open: None,
            held: Vec::new(),
        }
    }

    /// Adds the results of a batch, the one after the last unless [`publish`](Self::publish) came between.
    pub(crate) fn push(
        &mut self,
        job: &Job,
        rows: &RecordBatch,
        rejected: &[(usize, Reason)],
    ) -> Result<(), StoreError> {
        self.held.push(Held {
            batch: job.index,
            rows: rows.clone(),
            rejected: rejected.iter().map(|&row| Rejected::of(job, row)).collect(),
        });
        if !job.ends_whole {
            return Ok(());
        }
        for held in std::mem::take(&mut self.held) {
            self.save(held)?;
        }
        let bytes = self.open.as_ref().map_or(0, |part| part.bytes);
        if self.saved.elapsed() >= self.every || bytes >= PART_BYTES {
            self.publish()?;
        }
        Ok(())
    }

    /// Batches whose results are in no part while a protein is unfinished.
    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    /// Adds the results of a batch to the part that is under construction.
    fn save(&mut self, held: Held) -> Result<(), StoreError> {
        let mut part = match self.open.take() {
            Some(part) => part,
            None => self.begin(held.batch)?,
        };
        part.writer.write(&held.rows)?;
        part.batches.end = held.batch + 1;
        part.rejected.extend(held.rejected);
        let values = &held.rows.columns()[self.layout.keys()..];
        part.bytes += values.iter().map(bytes).sum::<usize>();
        self.open = Some(part);
        Ok(())
    }

    fn begin(&self, first: u64) -> Result<OpenPart, StoreError> {
        let path = self.folder.part(first);
        Ok(OpenPart {
            writer: EmbeddingsWriter::create(&path, self.layout)?,
            batches: first..first,
            rejected: Vec::new(),
            bytes: 0,
        })
    }

    /// Ends the part that is under construction, if there is one.
    pub(crate) fn publish(&mut self) -> Result<(), StoreError> {
        let Some(part) = self.open.take() else {
            return Ok(());
        };
        let provenance = self
            .provenance
            .clone()
            .with(BATCHES, json!([part.batches.start, part.batches.end]))
            .with(REJECTED, json!(part.rejected));
        part.writer.finish(&provenance)?;
        self.saved = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{FixedSizeListArray, Float32Array};
    use arrow::buffer::Buffer;
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn only_the_values_themselves_count() {
        let message = Buffer::from_vec(vec![0f32; 1 << 20]);
        let slice = message.slice_with_length(4096, 4 * 8 * 100);
        let values = Float32Array::new(slice.into(), None);
        let field = Arc::new(Field::new_list_field(DataType::Float32, false));
        let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(field, 8, Arc::new(values), None));
        assert!(vectors.get_array_memory_size() > 1 << 20);
        assert_eq!(bytes(&vectors), 4 * 8 * 100);
        assert_eq!(bytes(&vectors.slice(10, 20)), 4 * 8 * 20);
    }
}
