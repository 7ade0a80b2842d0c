//! Some sequences of a pack.

use std::borrow::Cow;
use std::ops::Range;

use plmkit_contract::{Column, StoreDtype};

use crate::plan::Job;

/// Sequences of a pack that are computed together, and what is computed of them. They are counted from 0, in the order of
/// the pack.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    job: &'a Job,
    /// The rows of the pack, rising.
    rows: &'a [usize],
    /// The pack's own where the rows are neighbours: then nothing is copied.
    tokens: Cow<'a, [u8]>,
    /// Offsets in `tokens`, which need not begin at 0: `(sequences + 1)`.
    offsets: Cow<'a, [i32]>,
    pub(crate) columns: &'a [Column],
    /// The type in which all values have to be finite.
    pub(crate) dtype: StoreDtype,
}

impl<'a> Selection<'a> {
    /// The sequences in `rows` of the pack of `job`, rising.
    pub(crate) fn new(
        job: &'a Job,
        rows: &'a [usize],
        columns: &'a [Column],
        dtype: StoreDtype,
    ) -> Self {
        let (tokens, offsets) = (job.pack.tokens(), job.pack.cu_seqlens());
        let neighbours = rows.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let (tokens, offsets) = match (rows.first(), rows.last()) {
            (Some(&first), Some(&last)) if neighbours => (
                Cow::Borrowed(tokens),
                Cow::Borrowed(&offsets[first..=last + 1]),
            ),
            _ => gather(tokens, offsets, rows),
        };
        Self {
            job,
            rows,
            tokens,
            offsets,
            columns,
            dtype,
        }
    }

    /// The pack.
    pub(crate) fn job(&self) -> &'a Job {
        self.job
    }

    /// The number of sequences.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The record that a sequence is of.
    pub(crate) fn ordinal(&self, sequence: usize) -> u64 {
        self.job.pack.ordinals()[self.rows[sequence]]
    }

    /// The residues of a sequence.
    pub(crate) fn residues(&self, sequence: usize) -> usize {
        self.job.pack.residues(self.rows[sequence])
    }

    /// Where each of some sequences starts, and where the last one ends, counted from any token: `(sequences + 1)`.
    pub(crate) fn offsets(&self, sequences: &Range<usize>) -> &[i32] {
        &self.offsets[sequences.start..=sequences.end]
    }

    /// The token ids of some sequences back to back: `(total_tokens)`.
    pub(crate) fn tokens(&self, sequences: &Range<usize>) -> &[u8] {
        let offsets = self.offsets(sequences);
        &self.tokens[offsets[0] as usize..offsets[sequences.len()] as usize]
    }
}

/// Copies the tokens of some rows, with their offsets from 0.
fn gather<'a>(tokens: &[u8], offsets: &[i32], rows: &[usize]) -> (Cow<'a, [u8]>, Cow<'a, [i32]>) {
    let mut gathered = Vec::new();
    let mut ends = vec![0];
    let mut end = 0;
    for &row in rows {
        let (first, last) = (offsets[row], offsets[row + 1]);
        gathered.extend_from_slice(&tokens[first as usize..last as usize]);
        end += last - first;
        ends.push(end);
    }
    (Cow::Owned(gathered), Cow::Owned(ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tokens_of_rows_that_are_apart_are_put_together() {
        let (tokens, offsets) = gather(&[1, 2, 3, 4, 5, 6], &[0, 1, 3, 6], &[0, 2]);
        assert_eq!(tokens[..], [1, 4, 5, 6]);
        assert_eq!(offsets[..], [0, 1, 4]);
    }
}
