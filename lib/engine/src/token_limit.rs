//! The number of tokens to compute at once when memory is short.

/// Successful computations near the limit before the limit doubles: another process may have freed its memory.
const SUCCESSES_TO_DOUBLE: u32 = 16;

/// The most tokens to compute at once. Unlimited until memory runs out.
#[derive(Debug)]
pub(crate) struct TokenLimit {
    tokens: usize,
    successes: u32,
}

impl Default for TokenLimit {
    fn default() -> Self {
        Self {
            tokens: usize::MAX,
            successes: 0,
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
        self.tokens = tokens / 2;
        self.successes = 0;
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
}
