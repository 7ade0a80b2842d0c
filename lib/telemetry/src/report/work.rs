//! Floating-point operations of the work.

use crate::event::{BatchDone, RunStarted};

/// Sums over batches from which operations follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    tokens: f64,
    pairs: f64,
    /// Batches that do not say how many pairs of tokens they hold.
    without_pairs: u64,
}

impl Work {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        self.tokens += batch.tokens as f64;
        match batch.pairs {
            Some(pairs) => self.pairs += pairs as f64,
            None => self.without_pairs += 1,
        }
    }

    /// Operations on real tokens, those of attention included. `None` where a batch or the run leaves a part unsaid: less
    /// than was computed would be a wrong figure, not a lower one.
    pub(super) fn flops(&self, started: &RunStarted) -> Option<f64> {
        let per_token = started.flops_per_token? as f64;
        let per_pair = started.flops_per_pair? as f64;
        (self.without_pairs == 0).then_some(self.tokens * per_token + self.pairs * per_pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_those_of_tokens_and_of_pairs_and_unknown_where_a_part_is() {
        let batch = |tokens, pairs| BatchDone {
            tokens,
            pairs,
            ..BatchDone::default()
        };
        let started = |flops_per_token, flops_per_pair| RunStarted {
            flops_per_token,
            flops_per_pair,
            ..RunStarted::default()
        };
        let mut work = Work::default();
        work.add(&batch(10, Some(60)));
        work.add(&batch(5, Some(25)));
        assert_eq!(work.flops(&started(Some(1000), Some(2))), Some(15170.0));
        assert_eq!(work.flops(&started(Some(1000), None)), None);
        assert_eq!(work.flops(&started(None, Some(2))), None);
        work.add(&batch(1, None));
        assert_eq!(work.flops(&started(Some(1000), Some(2))), None);
    }
}
