//! The sequences that a run embeds.

use plmkit_contract::{ModelShape, SPECIAL_TOKENS};
use serde::Serialize;

/// The lengths of sequences, in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lengths {
    /// Rows: proteins, or windows of them.
    pub sequences: u64,
    /// Proteins: the rows of the embeddings, as windows become one row again.
    pub proteins: u64,
    /// Tokens of all rows, `<cls>` and `<eos>` included.
    pub tokens: u64,
    /// Pairs of tokens of one sequence: the sum of the squares of their lengths in tokens.
    pub pairs: u64,
    /// Residues of the rows of the embeddings.
    pub residues: u64,
    /// Pairs of residues of one protein: the values of contacts.
    pub residue_pairs: u64,
    /// What masked copies add to sequences, tokens and pairs, if each residue is masked once.
    #[serde(skip)]
    copies: [u64; 3],
    /// The ordinal and the residues of the last protein.
    #[serde(skip)]
    last: Option<(u64, u64)>,
}

impl Lengths {
    /// Adds a row of `residues` residues, of the protein `ordinal` with `length` residues. Rows of a protein are adjacent.
    pub fn add(&mut self, ordinal: u64, length: u32, residues: u32) {
        let tokens = u64::from(residues) + u64::from(SPECIAL_TOKENS);
        self.sequences += 1;
        self.tokens += tokens;
        let pairs = tokens.saturating_mul(tokens);
        self.pairs = self.pairs.saturating_add(pairs);
        for (sum, of_row) in self.copies.iter_mut().zip([1, tokens, pairs]) {
            *sum = sum.saturating_add(of_row.saturating_mul(residues.into()));
        }
        // A protein with one row may be truncated. A protein in several windows is whole.
        let (is_new, before, of_protein) = match self.last {
            Some((last, before)) if last == ordinal => (false, before, length),
            _ => (true, 0, residues),
        };
        let of_protein = u64::from(of_protein);
        self.proteins += u64::from(is_new);
        self.residues = self.residues - before + of_protein;
        let others = self.residue_pairs - before * before;
        self.residue_pairs = others.saturating_add(of_protein * of_protein);
        self.last = Some((ordinal, of_protein));
    }

    /// Returns the same sequences with a copy for each residue, in which it is masked.
    #[must_use]
    pub fn with_masked_copies(mut self) -> Self {
        let [sequences, tokens, pairs] = self.copies;
        self.sequences = self.sequences.saturating_add(sequences);
        self.tokens = self.tokens.saturating_add(tokens);
        self.pairs = self.pairs.saturating_add(pairs);
        self
    }

    /// Returns the sum over shards.
    pub(super) fn sum(shards: &[Self]) -> Self {
        let sum = |of: fn(&Self) -> u64| shards.iter().map(of).fold(0, u64::saturating_add);
        Self {
            sequences: sum(|shard| shard.sequences),
            proteins: sum(|shard| shard.proteins),
            tokens: sum(|shard| shard.tokens),
            pairs: sum(|shard| shard.pairs),
            residues: sum(|shard| shard.residues),
            residue_pairs: sum(|shard| shard.residue_pairs),
            ..Self::default()
        }
    }

    /// Returns the floating-point operations of the matrix products, and those of attention.
    pub(super) fn flops(&self, shape: &ModelShape) -> [f64; 2] {
        let linear = self.tokens as f64 * shape.flops_per_token() as f64;
        [linear, self.pairs as f64 * shape.flops_per_pair() as f64]
    }
}
