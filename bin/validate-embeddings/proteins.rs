//! Shard rows as the rows of whole proteins.

use plmkit_contract::{RowKey, RowSpan, SequenceDigest, ShardRow};
use plmkit_store::Shard;

/// Calls `see` with one row for each protein of a shard. The windows of a protein, which are neighbours, become one row with
/// the digest of all residues.
///
/// Windows that are missing leave gaps, which show in the digest and in the number of windows.
pub(crate) fn each_protein(shard: &Shard, mut see: impl FnMut(&RowKey)) {
    let mut open: Option<Protein> = None;
    for row in shard.rows().iter() {
        match &mut open {
            Some(protein) if protein.first.ordinal == row.key.ordinal => {
                protein.add(&row);
                continue;
            }
            Some(protein) => see(&protein.row()),
            None => {}
        }
        open = span(&row).is_window().then(|| Protein::new(&row));
        if open.is_none() {
            see(&row.key);
        }
    }
    if let Some(protein) = open {
        see(&protein.row());
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

/// The windows of a protein so far.
struct Protein<'a> {
    first: RowKey<'a>,
    n_windows: u32,
    residues: String,
}

impl<'a> Protein<'a> {
    fn new(first: &ShardRow<'a>) -> Self {
        Self {
            first: first.key,
            n_windows: 1,
            residues: first.sequence.to_owned(),
        }
    }

    fn add(&mut self, row: &ShardRow) {
        self.n_windows += 1;
        let known = self.residues.len().saturating_sub(row.key.start as usize);
        self.residues += row.sequence.get(known..).unwrap_or_default();
    }

    fn row(&self) -> RowKey<'a> {
        RowKey {
            start: 0,
            digest: SequenceDigest::new(self.residues.as_bytes()),
            n_windows: self.n_windows,
            ..self.first
        }
    }
}
