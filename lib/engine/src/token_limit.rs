//! The number of tokens to compute at once when memory is short.

use plmkit_logs::thresholds::MEMORY_CRITICAL_ABOVE;

/// Successful computations near the limit before the limit doubles: another process may have freed its memory.
const SUCCESSES_TO_DOUBLE: u32 = 16;

/// A sequence of up to so many tokens fits into the memory of any device that is free: the length in the training of ESM-2.
pub(crate) const USUAL_TOKENS: usize = 1024;

/// Batches in a row with nearly full memory before the limit halves.
const NEARLY_FULL_BATCHES: u32 = 3;

/// The most tokens to compute at once. Unlimited until memory runs out, or nearly does.
#[derive(Debug)]
pub(crate) struct TokenLimit {
    tokens: usize,
    successes: u32,
    /// Batches in a row with nearly full memory.
    nearly_full: u32,
    /// The tokens of the longest sequence that fitted.
    longest_fitted: usize,
    /// The tokens of the shortest sequence that did not fit alone.
    shortest_unfit: usize,
}

impl Default for TokenLimit {
    fn default() -> Self {
        Self {
            tokens: usize::MAX,
            successes: 0,
            nearly_full: 0,
            longest_fitted: 0,
            shortest_unfit: usize::MAX,
        }
    }
}

impl TokenLimit {
    /// Whether `tokens` may be computed at once.
    pub(crate) fn permits(&self, tokens: usize) -> bool {
        tokens <= self.tokens
    }

    /// Halves the limit: `tokens` did not fit.
    pub(crate) fn record_failure(&mut self, tokens: usize) {
        // Zero would not double.
        self.tokens = (tokens / 2).max(1);
        self.successes = 0;
    }

    /// Notes that a batch of `tokens` needed this share of the device memory. After three such batches in a row, the limit halves,
    /// and the result is true.
    pub(crate) fn record_memory(&mut self, share: f64, tokens: usize) -> bool {
        self.nearly_full = if share > MEMORY_CRITICAL_ABOVE {
            self.nearly_full + 1
        } else {
            0
        };
        let is_full = self.nearly_full >= NEARLY_FULL_BATCHES;
        if is_full {
            self.nearly_full = 0;
            self.record_failure(tokens.min(self.tokens));
        }
        is_full
    }

    /// Notes that sequences of up to `tokens` fitted.
    pub(crate) fn record_sequence(&mut self, tokens: usize) {
        self.longest_fitted = self.longest_fitted.max(tokens);
    }

    /// Notes that a sequence of `tokens` did not fit alone. If one that is as long did before, it is not the sequence that is too
    /// large: the error is its length.
    pub(crate) fn record_unfit(&mut self, tokens: usize) -> Result<(), usize> {
        self.shortest_unfit = self.shortest_unfit.min(tokens);
        if tokens <= self.longest_fitted {
            return Err(self.longest_fitted);
        }
        Ok(())
    }

    /// The tokens of a sequence that did not fit, although it was as short as most, where none fitted at all.
    pub(crate) fn nothing_fits(&self) -> Option<usize> {
        let is_short = self.longest_fitted == 0 && self.shortest_unfit <= USUAL_TOKENS;
        is_short.then_some(self.shortest_unfit)
    }

    /// Counts a computation that fitted. The limit doubles after enough of them.
    pub(crate) fn record_success(&mut self, tokens: usize) {
        // A small computation would have fitted under half the limit, too.
        if tokens > self.tokens / 2 {
            self.successes += 1;
        }
        if self.successes >= SUCCESSES_TO_DOUBLE {
            self.tokens = self.tokens.saturating_mul(2);
            self.successes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_halves_on_failure_and_doubles_after_enough_successes() {
        let mut limit = TokenLimit::default();
        assert!(limit.permits(usize::MAX));
        limit.record_failure(1000);
        assert!(limit.permits(500) && !limit.permits(501));
        for _ in 0..SUCCESSES_TO_DOUBLE {
            limit.record_success(100);
        }
        assert!(!limit.permits(501), "small batches say nothing");
        for _ in 0..SUCCESSES_TO_DOUBLE {
            assert!(!limit.permits(501));
            limit.record_success(400);
        }
        assert!(limit.permits(1000) && !limit.permits(1001));
    }

    #[test]
    fn a_sequence_is_too_large_only_if_none_as_long_fitted() {
        let mut limit = TokenLimit::default();
        assert_eq!(limit.nothing_fits(), None);
        assert_eq!(limit.record_unfit(3000), Ok(()));
        assert_eq!(limit.nothing_fits(), None, "a long one may be too large");
        assert_eq!(limit.record_unfit(USUAL_TOKENS), Ok(()));
        assert_eq!(limit.nothing_fits(), Some(USUAL_TOKENS));
        limit.record_sequence(200);
        limit.record_sequence(100);
        assert_eq!(limit.nothing_fits(), None);
        let unfit = [201, 200].map(|tokens| limit.record_unfit(tokens));
        assert_eq!(unfit, [Ok(()), Err(200)]);
    }

    #[test]
    fn the_smallest_limit_doubles_too() {
        let mut limit = TokenLimit::default();
        limit.record_failure(1);
        for _ in 0..SUCCESSES_TO_DOUBLE {
            limit.record_success(3);
        }
        assert!(limit.permits(2));
    }

    #[test]
    fn the_limit_halves_after_three_batches_in_a_row_that_nearly_fill_the_memory() {
        let mut limit = TokenLimit::default();
        let shares = [0.96, 0.99, 0.95, 0.96, 0.96, 0.96, 0.99];
        let halved = shares.map(|share| limit.record_memory(share, 1000));
        assert_eq!(halved, [false, false, false, false, false, true, false]);
        assert!(limit.permits(500) && !limit.permits(501));
    }
}
