//! The position of a row in its protein.

use std::ops::Range;

/// The position of a row's residues in their protein.
///
/// A row is a *window* if other rows hold the residues of the protein that it lacks.
///
/// ```
/// use plmkit_contract::RowSpan;
/// let whole = RowSpan { start: 0, residues: 90, length: 90, truncated: false };
/// assert!(!whole.is_window());
/// assert!(!RowSpan { length: 200, truncated: true, ..whole }.is_window());
/// let first = RowSpan { length: 200, ..whole };
/// let last = RowSpan { start: 110, ..first };
/// assert!(first.is_window() && !first.is_last());
/// assert!(last.is_window() && last.is_last());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan {
    /// 0-based offset of the first residue in the protein.
    pub start: u32,
    /// Number of residues in the row.
    pub residues: usize,
    /// Number of residues in the protein.
    pub length: u32,
    /// Whether some residues of the protein are in no row.
    pub truncated: bool,
}

impl RowSpan {
    /// Whether other rows hold residues of the protein.
    pub fn is_window(self) -> bool {
        self.start > 0 || (self.residues < self.length as usize && !self.truncated)
    }

    /// Whether the row holds the last residue of the protein.
    pub fn is_last(self) -> bool {
        self.range().end == u64::from(self.length)
    }

    /// Returns the 0-based positions of the row's residues in the protein.
    pub fn range(self) -> Range<u64> {
        let start = u64::from(self.start);
        start..start + self.residues as u64
    }
}
