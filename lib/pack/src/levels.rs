//! A set of small integers that finds its next member in a few word operations.

/// A hierarchical bitset: bit `i` of a level says whether word `i` of the level below has any bit set.
///
/// With 64-bit words, a set over `0..n` has `log64(n)` levels: four for sixteen million.
#[derive(Debug)]
pub(crate) struct LevelSet {
    /// From the members themselves up to a single word.
    tiers: Vec<Vec<u64>>,
}

impl LevelSet {
    /// An empty set that can hold `0..=max`.
    pub(crate) fn new(max: u32) -> Self {
        let mut tiers = Vec::new();
        let mut words = max as usize / 64 + 1;
        loop {
            tiers.push(vec![0; words]);
            if words == 1 {
                return Self { tiers };
            }
            words = words.div_ceil(64);
        }
    }

    /// Adds a member.
    pub(crate) fn insert(&mut self, member: u32) {
        let mut index = member as usize;
        for tier in &mut self.tiers {
            tier[index / 64] |= 1 << (index % 64);
            index /= 64;
        }
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, member: u32) {
        let mut index = member as usize;
        for tier in &mut self.tiers {
            let word = &mut tier[index / 64];
            *word &= !(1 << (index % 64));
            if *word != 0 {
                return;
            }
            index /= 64;
        }
    }

    /// The smallest member not below `from`.
    pub(crate) fn first_from(&self, from: u32) -> Option<u32> {
        let mut index = from as usize;
        for (height, tier) in self.tiers.iter().enumerate() {
            let word = tier.get(index / 64)? >> (index % 64);
            if word != 0 {
                let found = index + word.trailing_zeros() as usize;
                return Some(self.smallest_under(height, found));
            }
            index = index / 64 + 1;
        }
        None
    }

    /// The smallest member under bit `index` of the tier at `height`, which is set.
    fn smallest_under(&self, height: usize, index: usize) -> u32 {
        let lowest = self.tiers[..height].iter().rev().fold(index, |word, tier| {
            word * 64 + tier[word].trailing_zeros() as usize
        });
        lowest as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            max in 0_u32..300_000,
            steps in prop::collection::vec((any::<bool>(), any::<u32>(), any::<u32>()), 0..200),
        ) {
            let mut set = LevelSet::new(max);
            let mut model = BTreeSet::new();
            for (add, member, from) in steps {
                let (member, from) = (member % (max + 1), from % (max + 1));
                if add {
                    set.insert(member);
                    model.insert(member);
                } else {
                    // Removing what is there is the case that counts.
                    let member = model.range(member..).next().copied().unwrap_or(member);
                    set.remove(member);
                    model.remove(&member);
                }
                prop_assert_eq!(set.first_from(from), model.range(from..).next().copied());
            }
        }
    }

    #[test]
    fn finds_the_last_member_and_nothing_after_it() {
        for max in [0, 63, 64, 4095, 4096, 262_143, 262_144] {
            let mut set = LevelSet::new(max);
            assert_eq!(set.first_from(0), None);
            set.insert(max);
            assert_eq!(set.first_from(0), Some(max));
            assert_eq!(set.first_from(max), Some(max));
            assert_eq!(set.first_from(max + 1), None);
            set.remove(max);
            assert_eq!(set.first_from(0), None);
        }
    }
}
