//! The number of tokens to compute at once when memory is short.

use plmkit_logs::thresholds::MEMORY_CRITICAL_ABOVE;

/// Successful computations near the limit before the limit doubles: another process may have freed its memory.
const SUCCESSES_TO_DOUBLE: u32 = 16;

/// Batches in a row with nearly full memory before the limit halves.
const NEARLY_FULL_BATCHES: u32 = 3;

/// The most tokens to compute at once. Unlimited until memory runs out, or nearly does.
#[derive(Debug)]
pub(crate) struct TokenLimit {
    tokens: usize,
    successes: u32,
    /// Batches in a row with nearly full memory.
    nearly_full: u32,
}

impl Default for TokenLimit {
    fn default() -> Self {
        Self {
            tokens: usize::MAX,
            successes: 0,
            nearly_full: 0,
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
