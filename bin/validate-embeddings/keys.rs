//! The key columns of a record batch, row by row.

use arrow::array::{AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::datatypes::UInt32Type;
use plmkit_check::Row;
use plmkit_contract::{N_WINDOWS, ordinals};

/// The columns that shards and embeddings share.
pub(crate) struct Keys<'a> {
    ordinals: &'a [u64],
    ids: &'a StringArray,
    starts: &'a [u32],
    lengths: &'a [u32],
    truncated: &'a BooleanArray,
    digests: &'a StringArray,
    /// Only embeddings of whole proteins have it.
    n_windows: Option<&'a [u32]>,
}

impl<'a> Keys<'a> {
    /// The key columns of a batch of a verified shard or embeddings file.
    pub(crate) fn new(batch: &'a RecordBatch) -> Self {
        Self {
            ordinals: ordinals(batch),
            ids: batch["id"].as_string(),
            starts: batch["start"].as_primitive::<UInt32Type>().values(),
            lengths: batch["length"].as_primitive::<UInt32Type>().values(),
            truncated: batch["truncated"].as_boolean(),
            digests: batch["sequence_digest"].as_string(),
            n_windows: batch
                .column_by_name(N_WINDOWS)
                .map(|windows| windows.as_primitive::<UInt32Type>().values().as_ref()),
        }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        (0..self.ordinals.len()).map(|row| {
            Row {
                ordinal: self.ordinals[row],
                id: self.ids.value(row),
                start: self.starts[row],
                length: self.lengths[row],
                truncated: self.truncated.value(row),
                // A file that was verified has no other text.
                digest: self.digests.value(row).parse().unwrap_or_default(),
                n_windows: self.n_windows.map_or(1, |windows| windows[row]),
            }
        })
    }
}
