//! Reading frames, and places on contigs.

use std::fmt;
use std::ops::Range;

/// A reading frame: 1, 2 or 3 begins at that base. −1, −2 and −3 are the same codons on the other strand, read from the last one
/// on. So does EMBOSS `transeq` number them, in its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame(pub(crate) i8);

impl Frame {
    /// All six, in the order of the output.
    pub(super) const ALL: [Self; 6] = [Self(1), Self(2), Self(3), Self(-1), Self(-2), Self(-3)];

    pub(super) fn is_forward(self) -> bool {
        self.0 > 0
    }

    /// Returns the offset of the leftmost codon in the contig.
    pub(super) fn offset(self) -> usize {
        usize::from(self.0.unsigned_abs()) - 1
    }

    /// Returns the place on the contig of codons `read` of the `codons` of the frame, counted from 0 as they are read.
    pub(super) fn place(self, read: Range<usize>, codons: usize) -> PeptidePlace {
        let Range { start, end } = if self.is_forward() {
            read
        } else {
            codons - read.end..codons - read.start
        };
        let base = |codon: usize| (self.offset() + 3 * codon) as u32;
        PeptidePlace {
            frame: self,
            start: base(start) + 1,
            end: base(end),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a peptide on its contig. Its text is the end of the peptide's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeptidePlace {
    pub(crate) frame: Frame,
    /// The leftmost base, counted from 1 on the strand of the contig in every frame.
    pub(crate) start: u32,
    /// The rightmost base.
    pub(crate) end: u32,
}

impl fmt::Display for PeptidePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.frame, self.start, self.end)
    }
}
