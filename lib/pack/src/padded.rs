//! The cost of padding.

use serde::Serialize;

/// The cost of padded batches with the same budget of tokens.
///
/// A padded batch costs its number of sequences times its longest one. The loader takes sequences in order, and ends a batch before
/// the sequence that would raise its cost above the budget. A sequence above the budget is its own batch. fair-esm makes batches
/// like this (`FastaBatchedDataset.get_batch_indices`), after sorting by length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaddedCost {
    /// Number of batches.
    pub batches: u64,
    /// Tokens computed, padding included.
    pub tokens: u64,
    /// Computed tokens per real token; 1 means no padding. `None` without tokens.
    pub tokens_per_real_token: Option<f64>,
}

impl PaddedCost {
    /// Computes the cost of padding sequences of `lengths` tokens, in this order, with `budget` tokens per batch.
    pub(crate) fn new(lengths: &[u32], budget: u32) -> Self {
        let (mut batches, mut tokens, mut real) = (0, 0, 0);
        let (mut count, mut longest) = (0_u64, 0_u64); // of the current batch
        for length in lengths.iter().map(|&length| u64::from(length)) {
            real += length;
            let grown = longest.max(length);
            if count > 0 && (count + 1) * grown > u64::from(budget) {
                batches += 1;
                tokens += count * longest;
                (count, longest) = (1, length);
            } else {
                (count, longest) = (count + 1, grown);
            }
        }
        batches += u64::from(count > 0);
        tokens += count * longest;
        Self {
            batches,
            tokens,
            tokens_per_real_token: (real > 0).then(|| tokens as f64 / real as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(lengths: &[u32], budget: u32) -> (u64, u64, Option<f64>) {
        let cost = PaddedCost::new(lengths, budget);
        (cost.batches, cost.tokens, cost.tokens_per_real_token)
    }

    #[test]
    fn counts_the_rectangle_of_each_batch() {
        // 3 × 10 > 25: [10, 2] is 20 tokens, [2, 9] is 18, [20] is 20.
        assert_eq!(cost(&[10, 2, 2, 9, 20], 25), (3, 58, Some(58.0 / 43.0)));
        // In order of length nothing is far from its batch-mates: [2, 2], [9, 10], [20].
        assert_eq!(cost(&[2, 2, 9, 10, 20], 25), (3, 44, Some(44.0 / 43.0)));
    }

    #[test]
    fn a_batch_may_fill_the_budget_but_not_pass_it() {
        assert_eq!(cost(&[5, 5, 5], 10), (2, 15, Some(1.0)));
    }

    #[test]
    fn a_sequence_beyond_the_budget_is_alone() {
        assert_eq!(cost(&[50, 1, 50], 10), (3, 101, Some(1.0)));
    }

    #[test]
    fn nothing_costs_nothing() {
        assert_eq!(cost(&[], 10), (0, 0, None));
    }
}
