//! What identifies a row of a shard or of an embeddings file.

use plmkit_contract::SequenceDigest;

/// The key columns of one row, as [`KEY_COLUMNS`](plmkit_contract::KEY_COLUMNS) names them, and
/// [`N_WINDOWS`](plmkit_contract::N_WINDOWS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// 0-based position of the record in the whole input; with `start` the key.
    pub ordinal: u64,
    /// The record's id.
    pub id: &'a str,
    /// 0-based offset of the row's first residue in the protein.
    pub start: u32,
    /// Residues of the whole protein.
    pub length: u32,
    /// Whether residues of the protein are in no row at all.
    pub truncated: bool,
    /// Digest of the row's residues.
    pub digest: SequenceDigest,
    /// The windows that the row was put together from: 1 where it is one itself, or has none.
    pub n_windows: u32,
}

impl Row<'_> {
    pub(crate) fn key(&self) -> (u64, u32) {
        (self.ordinal, self.start)
    }
}
