//! What a sample shows: the chance that it has a row of a fault.

/// What a sample of the rows of some shards shows of all of them.
#[derive(Debug, Default)]
pub struct Power {
    /// The rows of the shards.
    pub(crate) rows: u64,
    /// Of these, the ones that were chosen at random, and those of too many tokens to be chosen.
    pub(crate) random: u64,
    pub(crate) too_long: u64,
    /// Of the others, one in so many was chosen, in the shard with the smallest share.
    pub(crate) one_in: f64,
    /// The tokens of the longest row, and of the longest that was chosen.
    pub(crate) longest: u64,
    pub(crate) longest_chosen: u64,
}

impl Power {
    /// Adds that of other shards.
    pub(crate) fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.random += other.random;
        self.too_long += other.too_long;
        self.one_in = self.one_in.max(other.one_in);
        self.longest = self.longest.max(other.longest);
        self.longest_chosen = self.longest_chosen.max(other.longest_chosen);
    }

    /// The chance that a fault in a tenth of the rows has one that was chosen at random, whatever rows these are.
    ///
    /// Let a shard have a share `w` of the rows, a share `f` of its rows be faulty, and `n * w` or more be chosen. At random, or at
    /// random of each class, none of these is faulty with a chance of (1 - f)^(n * w) at most. The product over all shards is largest
    /// where `f` is the same everywhere: (1 - f)^n. In the worst case, the rows that are too long are faulty, too.
    pub(crate) fn chance(&self) -> f64 {
        if self.random == self.rows {
            return 1.0;
        }
        let others = (self.rows - self.too_long) as f64;
        let faulty = (self.rows as f64 / 10.0 - self.too_long as f64).max(0.0) / others;
        1.0 - (1.0 - faulty).powf((others / self.one_in).floor())
    }

    /// What follows the number of rows that were computed again.
    pub(crate) fn in_words(&self) -> String {
        if self.random == self.rows {
            return ": all".to_owned();
        }
        // Not rounded up: it is at least so much.
        let (random, chance) = (self.random, (1000.0 * self.chance()).floor() / 10.0);
        let said = format!(
            ", {random} of them chosen at random: a fault in 10 % of the rows is seen with at least {chance:.1} %"
        );
        match self.longest {
            longest if longest == self.longest_chosen => said,
            longest => {
                format!("{said}; the longest row, of {longest} tokens, was not computed again")
            }
        }
    }
}
