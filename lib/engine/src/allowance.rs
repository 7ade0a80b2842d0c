//! How much to compute at once when memory is short.

/// Computations of the allowed size that succeed before more is tried: memory that another process took may be
/// free again.
const PATIENCE: u32 = 16;

/// The most tokens to compute at once. There is no limit until memory has run out.
#[derive(Debug)]
pub(crate) struct Allowance {
    tokens: usize,
    successes: u32,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            tokens: usize::MAX,
            successes: 0,
        }
    }
}

impl Allowance {
    pub(crate) fn permits(&self, tokens: usize) -> bool {
        tokens <= self.tokens
    }

    /// So many tokens did not fit.
    pub(crate) fn failed(&mut self, tokens: usize) {
        self.tokens = tokens / 2;
        self.successes = 0;
    }

    /// So many tokens did fit.
    pub(crate) fn succeeded(&mut self, tokens: usize) {
        // What is small would have fitted anyway.
        if tokens > self.tokens / 2 {
            self.successes += 1;
        }
        if self.successes >= PATIENCE {
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
        let mut allowance = Allowance::default();
        assert!(allowance.permits(usize::MAX));
        allowance.failed(1000);
        assert!(allowance.permits(500) && !allowance.permits(501));
        for _ in 0..PATIENCE {
            allowance.succeeded(100);
        }
        assert!(!allowance.permits(501), "small packs say nothing");
        for _ in 0..PATIENCE {
            assert!(!allowance.permits(501));
            allowance.succeeded(400);
        }
        assert!(allowance.permits(1000) && !allowance.permits(1001));
    }
}
