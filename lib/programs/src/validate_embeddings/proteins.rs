//! Shard rows as the rows of whole proteins.

use plmkit_contract::{RowKey, RowSpan, SequenceDigest, ShardRow};
use plmkit_store::Shard;

/// Calls `see` with one row for each protein of a shard. The windows of a protein, which are neighbours, become one row with
/// the digest of all residues.
///
/// Windows that are missing leave gaps, which show in the digest and in the number of windows.
pub(crate) fn each_protein(shard: &Shard, mut see: impl FnMut(&RowKey)) {
    let rows: Vec<ShardRow> = shard.rows().iter().collect();
    for rows in rows.chunk_by(|one, next| one.key.ordinal == next.key.ordinal) {
        let first = &rows[0];
        if !span(first).is_window() {
            rows.iter().map(|row| &row.key).for_each(&mut see);
            continue;
        }
        let mut residues = String::new();
        for row in rows {
            let known = residues.len().saturating_sub(row.key.start as usize);
            residues += row.sequence.get(known..).unwrap_or_default();
        }
        see(&RowKey {
            start: 0,
            digest: SequenceDigest::new(residues.as_bytes()),
            n_windows: rows.len() as u32,
            ..first.key
        });
    }
}

/// Where a row lies in its protein.
fn span(row: &ShardRow) -> RowSpan {
    RowSpan {
        start: row.key.start,
        residues: row.sequence.len(),
        length: row.key.length,
        truncated: row.key.truncated,
    }
}
