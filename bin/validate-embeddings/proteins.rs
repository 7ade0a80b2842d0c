//! Shard rows as the rows of whole proteins.

use arrow::array::AsArray;
use plmkit_check::{Row, ShardRows};
use plmkit_contract::{SequenceDigest, Span};
use plmkit_store::Table;

use crate::keys::Keys;

/// Adds the row of each protein of a shard to those that are expected: the windows of one, which are neighbours, as one
/// row with the digest of all residues.
///
/// Windows that are missing leave gaps, which show in the digest and in the number of windows.
pub(crate) fn add_proteins(rows: &mut ShardRows, shard: &Table) {
    let mut open: Option<Protein> = None;
    for batch in &shard.batches {
        let sequences = batch["sequence"].as_string::<i32>();
        for (place, row) in Keys::new(batch).rows().enumerate() {
            let sequence = sequences.value(place).as_bytes();
            let span = Span {
                start: row.start,
                residues: sequence.len(),
                length: row.length,
                truncated: row.truncated,
            };
            if let Some(protein) = &mut open {
                if protein.first.ordinal == row.ordinal {
                    protein.add(span, sequence);
                    continue;
                }
                rows.push(&protein.row());
                open = None;
            }
            if span.is_window() {
                open = Some(Protein::new(row, sequence));
            } else {
                rows.push(&row);
            }
        }
    }
    if let Some(protein) = open {
        rows.push(&protein.row());
    }
}

/// The windows of a protein so far.
struct Protein<'a> {
    first: Row<'a>,
    n_windows: u32,
    residues: Vec<u8>,
}

impl<'a> Protein<'a> {
    fn new(first: Row<'a>, sequence: &[u8]) -> Self {
        Self {
            first,
            n_windows: 1,
            residues: sequence.to_vec(),
        }
    }

    fn add(&mut self, span: Span, sequence: &[u8]) {
        self.n_windows += 1;
        let known = (self.residues.len() as u64).saturating_sub(span.range().start);
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        self.residues
            .extend_from_slice(sequence.get(known..).unwrap_or_default());
    }

    fn row(&self) -> Row<'a> {
        Row {
            start: 0,
            digest: SequenceDigest::new(&self.residues),
            n_windows: self.n_windows,
            ..self.first
        }
    }
}
