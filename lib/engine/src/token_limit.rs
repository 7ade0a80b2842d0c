//! How many tokens to compute at once when memory is short.

/// Computations of the allowed size that succeed before more is tried: memory that another process took may be
/// free again.
const SUCCESSES_TO_DOUBLE: u32 = 16;

/// The most tokens to compute at once. There is no limit until memory has run out.
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
    pub(crate) fn permits(&self, tokens: usize) -> bool {
        tokens <= self.tokens
    }

    /// Halves the limit: `tokens` did not fit.
    pub(crate) fn record_failure(&mut self, tokens: usize) {
        self.tokens = tokens / 2;
        self.successes = 0;
    }

    /// Counts a computation that fitted; after enough of them the limit doubles.
    pub(crate) fn record_success(&mut self, tokens: usize) {
        // What is small would have fitted anyway.
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
    fn half_of_what_failed_is_tried_and_later_more_again() {
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
