//! Proteins and their windows.

use std::ops::Range;

use plmkit_contract::{RowKey, SPECIAL_TOKENS, SequenceDigest, ShardRow};
use plmkit_store::row_bytes;

use crate::aliases::Identity;
use crate::residue::ResidueChanges;

/// An accepted protein.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protein<'a> {
    /// 0-based position of the record in the whole input.
    pub ordinal: u64,
    /// Its id.
    pub id: &'a str,
    /// The rest of its header, if any.
    pub description: Option<&'a str>,
    /// The residues to embed, upper case.
    pub residues: &'a [u8],
    /// Number of residues in the whole protein.
    pub length: u32,
    /// Whether it is kept whole although it is above the maximum.
    pub split_off: bool,
    /// The changes of normalising its sequence.
    pub changes: ResidueChanges,
    /// Its digests, if they were computed.
    pub identity: Option<Identity>,
    /// The residues of a window, and of the overlap of two.
    pub(crate) window: (u32, u32),
}

impl<'a> Protein<'a> {
    /// Iterates over the rows, as 0-based residue ranges of the protein.
    pub fn windows(self) -> impl ExactSizeIterator<Item = Range<u32>> {
        let (max, overlap) = self.window;
        windows(self.residues.len() as u32, max, overlap)
    }

    /// Whether some of its residues are in no row.
    pub fn is_truncated(self) -> bool {
        (self.residues.len() as u32) < self.length
    }

    /// Returns the number of residues in all rows. Residues in an overlap count twice.
    pub fn row_residues(self) -> u64 {
        self.windows()
            .map(|window| u64::from(window.end - window.start))
            .sum()
    }

    /// Returns the number of tokens in all rows.
    pub fn tokens(self) -> u64 {
        self.row_residues() + self.windows().len() as u64 * u64::from(SPECIAL_TOKENS)
    }

    /// Returns the bytes of its rows in a row group.
    pub(crate) fn row_bytes(self) -> usize {
        let bytes = |window: Range<u32>| {
            let residues = (window.end - window.start) as usize;
            row_bytes(self.id, self.description, residues)
        };
        self.windows().map(bytes).sum()
    }

    /// Iterates over its rows.
    ///
    /// # Panics
    /// If its residues are not ASCII.
    pub fn rows(self) -> impl Iterator<Item = ShardRow<'a>> {
        self.rows_without_digests().map(|mut row| {
            row.key.digest = SequenceDigest::new(row.sequence.as_bytes());
            row
        })
    }

    /// Iterates over its rows, whose digests are to be set.
    pub(crate) fn rows_without_digests(self) -> impl Iterator<Item = ShardRow<'a>> {
        self.windows().map(move |window| {
            let residues = &self.residues[window.start as usize..window.end as usize];
            let key = RowKey {
                ordinal: self.ordinal,
                id: self.id,
                start: window.start,
                length: self.length,
                truncated: self.is_truncated(),
                digest: SequenceDigest::default(),
                n_windows: 1,
            };
            ShardRow {
                key,
                description: self.description,
                sequence: str::from_utf8(residues).expect("residues are ASCII letters"),
            }
        })
    }
}

/// Iterates over the windows of a sequence of `length` residues, in order, as 0-based residue ranges.
///
/// A sequence of at most `max` residues is one window. A longer one has windows of `max` residues, each of which shares
/// `overlap` residues with the one before. The last window ends at the end of the sequence and may be shorter.
///
/// # Panics
///
/// Unless `overlap` is less than `max`.
///
/// ```
/// let windows: Vec<_> = plmkit_sequence::windows(10, 4, 1).collect();
/// assert_eq!(windows, [0..4, 3..7, 6..10]);
/// ```
pub fn windows(length: u32, max: u32, overlap: u32) -> impl ExactSizeIterator<Item = Range<u32>> {
    assert!(
        overlap < max,
        "windows of {max} residues cannot overlap by {overlap}"
    );
    let stride = max - overlap;
    let count = 1 + length.saturating_sub(max).div_ceil(stride);
    (0..count).map(move |i| {
        let start = i * stride;
        start..length.min(start.saturating_add(max))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sequence_that_fits_is_one_window() {
        for (length, max, overlap) in [(1022, 1022, 256), (1, 1, 0), (u32::MAX, u32::MAX, 0)] {
            assert_eq!(windows(length, max, overlap).len(), 1);
            assert_eq!(windows(length, max, overlap).next(), Some(0..length));
        }
    }

    #[test]
    fn one_residue_more_is_two_windows() {
        assert_eq!(
            windows(1023, 1022, 256).collect::<Vec<_>>(),
            [0..1022, 766..1023]
        );
    }

    proptest! {
        #[test]
        fn every_residue_is_covered_and_neighbours_share_the_overlap(
            length in 1u32..50_000,
            (max, overlap) in (1u32..3000).prop_flat_map(|max| (Just(max), 0..max)),
        ) {
            let windows: Vec<_> = windows(length, max, overlap).collect();
            prop_assert_eq!(windows[0].start, 0);
            prop_assert_eq!(windows[windows.len() - 1].end, length);
            for window in &windows {
                prop_assert!(window.start < window.end && window.end - window.start <= max);
            }
            for pair in windows.windows(2) {
                prop_assert_eq!(pair[0].end - pair[0].start, max);
                prop_assert_eq!(pair[0].end - pair[1].start, overlap);
                prop_assert!(pair[0].end < pair[1].end);
            }
        }
    }
}
