//! A shard in memory, row by row.

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::UInt32Type;
use plmkit_contract::{ShardRow, ordinals};
use plmkit_sequence::SPECIAL_TOKENS;
use plmkit_store::Table;

/// The rows of a shard, numbered from 0 across its record batches.
pub(crate) struct Shard<'a> {
    batches: Vec<Columns<'a>>,
    /// The number of the first row of each batch.
    firsts: Vec<usize>,
}

/// The columns of one record batch.
struct Columns<'a> {
    ordinals: &'a [u64],
    ids: &'a StringArray,
    descriptions: &'a StringArray,
    sequences: &'a StringArray,
    lengths: &'a [u32],
    starts: &'a [u32],
    truncated: &'a BooleanArray,
    digests: &'a StringArray,
}

impl<'a> Shard<'a> {
    /// The rows of a verified shard, which has the columns of `shard_schema`.
    pub(crate) fn new(table: &'a Table) -> Self {
        let batches: Vec<Columns> = table.batches.iter().map(Columns::new).collect();
        let firsts = batches.iter().scan(0, |next, batch| {
            let first = *next;
            *next += batch.ordinals.len();
            Some(first)
        });
        Self {
            firsts: firsts.collect(),
            batches,
        }
    }

    /// Tokens of each row, `<cls>` and `<eos>` included.
    pub(crate) fn token_lengths(&self) -> Vec<u32> {
        let sequences = self.batches.iter().map(|batch| batch.sequences);
        let residues = sequences.flat_map(|sequences| sequences.offsets().lengths());
        residues
            .map(|residues| residues as u32 + SPECIAL_TOKENS)
            .collect()
    }

    /// The record of each row.
    pub(crate) fn ordinals(&self) -> impl Iterator<Item = u64> {
        self.batches
            .iter()
            .flat_map(|batch| batch.ordinals)
            .copied()
    }

    /// One row.
    pub(crate) fn row(&self, row: u32) -> ShardRow<'a> {
        let row = row as usize;
        let batch = self.firsts.partition_point(|&first| first <= row) - 1;
        self.batches[batch].row(row - self.firsts[batch])
    }
}

impl<'a> Columns<'a> {
    fn new(batch: &'a RecordBatch) -> Self {
        Self {
            ordinals: ordinals(batch),
            ids: batch["id"].as_string(),
            descriptions: batch["description"].as_string(),
            sequences: batch["sequence"].as_string(),
            lengths: batch["length"].as_primitive::<UInt32Type>().values(),
            starts: batch["start"].as_primitive::<UInt32Type>().values(),
            truncated: batch["truncated"].as_boolean(),
            digests: batch["sequence_digest"].as_string(),
        }
    }

    fn row(&self, row: usize) -> ShardRow<'a> {
        ShardRow {
            ordinal: self.ordinals[row],
            id: self.ids.value(row),
            description: self
                .descriptions
                .is_valid(row)
                .then(|| self.descriptions.value(row)),
            sequence: self.sequences.value(row),
            length: self.lengths[row],
            start: self.starts[row],
            truncated: self.truncated.value(row),
            // A file that was verified has no other text.
            digest: self.digests.value(row).parse().unwrap_or_default(),
        }
    }
}
