//! Bytes and files of a run, from bytes a row that real files have.

use plmkit_contract::{Column, DEFAULT_BATCH_TOKENS, StoreDtype};
use serde::Serialize;

use super::{Lengths, Plan, Work};

/// Bytes of the key of a row of embeddings, as encoded: id 13, digest 17, the rest 3. Ids of 21 letters.
const KEY_BYTES: f64 = 33.0;
/// Bytes of the key and the offset of a row of batches.
const BATCH_ROW_BYTES: f64 = 107.0;
/// Bytes of the footer of a shard.
const SHARD_BYTES: f64 = 4_000.0;
/// Bytes of the key and the description of a row of a shard, as encoded.
const SHARD_ROW_BYTES: f64 = 57.0;
/// Bytes of a residue in a shard, as encoded.
const RESIDUE_BYTES: f64 = 0.53;
/// Values that are encoded at once, and that a run may have saved beside its output: a row group.
const ROW_GROUP_BYTES: f64 = (64 << 20) as f64;
/// Bytes of a batch in a log of events.
const EVENT_BYTES: f64 = 360.0;
/// Bytes of a shard in the report on the runs of its sample. Samples are left out: they grow with time, by 0.2 kB a second.
const REPORT_BYTES: f64 = 7_000.0;
/// Bytes of the other reports and lists of a sample.
const SAMPLE_BYTES: f64 = 20_000.0;

/// Files of a shard: shard, embeddings, events and samples. A list of rejects is rare.
const FILES_OF_SHARD: f64 = 4.0;
/// Files of a sample: manifest, rejects, dataset, and three reports.
const FILES_OF_SAMPLE: f64 = 6.0;
/// Files of a run: summary, versions, parameters, the batch size.
const FILES_OF_RUN: f64 = 4.0;

/// Bytes of files, and their number, as the workflows leave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Shards, and their lists of aliases and of known records.
    pub shards: u64,
    /// Embeddings.
    pub embeddings: u64,
    /// Events, reports and lists, without samples.
    pub reports: u64,
    /// All that stays: the sum of the above.
    pub results: u64,
    /// The batches of the largest shards, one for each device; removed when the shard is embedded.
    pub batches: u64,
    /// Saved rows of row groups that are not complete, one for each device.
    pub checkpoints: u64,
    /// The most at any moment: results, batches and checkpoints.
    pub peak: u64,
    /// Files that stay.
    pub files: u64,
}

impl Disk {
    pub(super) fn new(plan: &Plan, work: &Work) -> Self {
        let busy = (plan.gpus.get() as usize).min(work.shards.len());
        let mut batches: Vec<f64> = work.shards.iter().map(batches_bytes).collect();
        batches.sort_unstable_by(|a, b| b.total_cmp(a));
        let largest = work
            .shards
            .iter()
            .map(|shard| embeddings_bytes(plan, shard));
        let largest = largest.fold(0.0, f64::max);
        let shards = work.shards.len() as f64;
        let batches: f64 = batches[..busy].iter().sum();
        let checkpoints = busy as f64 * largest.min(ROW_GROUP_BYTES);
        let events = (work.all.tokens / u64::from(DEFAULT_BATCH_TOKENS.get())) as f64 * EVENT_BYTES;
        let reports = events + shards * REPORT_BYTES + work.samples as f64 * SAMPLE_BYTES;
        let embeddings = embeddings_bytes(plan, &work.all).trunc();
        let results = work.shard_bytes as f64 + embeddings + reports;
        let files = shards * FILES_OF_SHARD + work.samples as f64 * FILES_OF_SAMPLE;
        // A float beyond all whole numbers becomes the greatest.
        Self {
            shards: work.shard_bytes,
            embeddings: embeddings as u64,
            reports: reports as u64,
            results: results as u64,
            batches: batches as u64,
            checkpoints: checkpoints as u64,
            peak: (results + batches + checkpoints.trunc()) as u64,
            files: (files + work.lists as f64 + FILES_OF_RUN) as u64,
        }
    }
}

/// Returns the bytes of a shard that was not read.
pub(super) fn shard_bytes(rows: u64, residues: u64) -> u64 {
    (SHARD_BYTES + rows as f64 * SHARD_ROW_BYTES + (residues as f64 * RESIDUE_BYTES).trunc()) as u64
}

fn batches_bytes(shard: &Lengths) -> f64 {
    shard.tokens as f64 + shard.sequences as f64 * BATCH_ROW_BYTES
}

fn embeddings_bytes(plan: &Plan, lengths: &Lengths) -> f64 {
    let proteins = lengths.proteins as f64;
    let value = plan.store_dtype.bytes() as f64;
    let values = plan.columns.iter().map(|&column| {
        let rows = match column {
            Column::Pooled(_) => proteins * encoded(plan.store_dtype),
            Column::Residues(_) | Column::Logits => lengths.residues as f64,
            Column::Contacts => lengths.residue_pairs as f64,
        };
        // The values for one residue, which for a pooled vector are those of the protein.
        rows * column.values(1, plan.shape.hidden as usize) as f64
    });
    proteins * KEY_BYTES + value * values.sum::<f64>()
}

/// The share of its bytes that a pooled vector takes as encoded. Lists of vectors are stored as they are.
fn encoded(dtype: StoreDtype) -> f64 {
    match dtype {
        StoreDtype::F32 => 0.8,
        StoreDtype::F16 => 0.88,
    }
}
