//! What a loader that pads would have computed.

use serde::Serialize;

/// The cost of padded batches at the same budget of tokens.
///
/// A padded batch is a rectangle: its sequences times the longest of them. The loader takes sequences in
/// order and closes a batch when one more would make the rectangle larger than the budget; a sequence longer
/// than the budget is a batch of its own. This is how fair-esm batches (`FastaBatchedDataset.get_batch_indices`,
/// which sorts by length first).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaddedCost {
    /// Number of batches.
    pub batches: u64,
    /// Tokens computed, padding included.
    pub tokens: u64,
    /// Tokens computed for each real one: 1 is no padding, 2 is half of the work for nothing. `None` when
    /// there is no token.
    pub tokens_per_real_token: Option<f64>,
}

impl PaddedCost {
    /// The cost of padding sequences of these lengths, taken in this order, at `budget` tokens a batch.
    pub(crate) fn new(lengths: impl Iterator<Item = u32>, budget: u32) -> Self {
        let (mut batches, mut tokens, mut real) = (0, 0, 0);
        let (mut count, mut longest) = (0_u64, 0_u64); // of the batch that is growing
        for length in lengths.map(u64::from) {
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
        let cost = PaddedCost::new(lengths.iter().copied(), budget);
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
