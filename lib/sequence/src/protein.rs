//! A protein on its way into a shard.

use std::ops::Range;

use plmkit_contract::{RowKey, SPECIAL_TOKENS, SequenceDigest, ShardRow};

use crate::residue::ResidueChanges;
use crate::window::windows;

/// A protein on its way into a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protein {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id.
    pub id: String,
    /// The rest of its header.
    pub description: Option<String>,
    /// The residues that are embedded, upper case.
    pub residues: String,
    /// Residues of the whole protein.
    pub length: u32,
    /// Whether it is above the maximum and kept whole.
    pub split_off: bool,
    /// What normalising its sequence changed.
    pub changes: ResidueChanges,
    /// Residues of a window and of the overlap of two.
    pub(crate) window: (u32, u32),
}

impl Protein {
    /// The residues of each row, as 0-based ranges of the protein.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = Range<u32>> {
        let (max, overlap) = self.window;
        windows(self.residues.len() as u32, max, overlap)
    }

    /// Whether residues of it are in no row.
    pub fn is_truncated(&self) -> bool {
        (self.residues.len() as u32) < self.length
    }

    /// Residues over all rows; those in an overlap count twice.
    pub fn row_residues(&self) -> u64 {
        self.windows()
            .map(|window| u64::from(window.end - window.start))
            .sum()
    }

    /// Tokens over all rows.
    pub fn tokens(&self) -> u64 {
        self.row_residues() + self.windows().len() as u64 * u64::from(SPECIAL_TOKENS)
    }

    /// Its rows of a shard.
    pub fn rows(&self) -> impl Iterator<Item = ShardRow<'_>> {
        self.windows().map(|window| {
            let sequence = &self.residues[window.start as usize..window.end as usize];
            let key = RowKey {
                ordinal: self.ordinal,
                id: &self.id,
                start: window.start,
                length: self.length,
                truncated: self.is_truncated(),
                digest: SequenceDigest::new(sequence.as_bytes()),
                n_windows: 1,
            };
            ShardRow {
                key,
                description: self.description.as_deref(),
                sequence,
            }
        })
    }
}
