//! Assigns proteins to shards. A cost is a number of tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::ShardTarget;
use crate::shard_limit::ShardLimit;

/// Assigns each protein to a shard.
pub(crate) enum Assigner {
    /// A protein goes to the shard with the least load, the first among equals. Loads then differ by at most the largest cost.
    LeastLoaded(BinaryHeap<Reverse<(u64, usize)>>),
    /// Shards are filled one after another up to the limit. A protein above the limit has its own shard.
    Sequential {
        limit: ShardLimit,
        load: u64,
        shard: usize,
    },
}

impl Assigner {
    pub(crate) fn new(target: ShardTarget) -> Self {
        match target {
            ShardTarget::Shards(count) => Self::LeastLoaded(
                (0..count.get() as usize)
                    .map(|shard| Reverse((0, shard)))
                    .collect(),
            ),
            ShardTarget::MaxTokens(limit) => Self::Sequential {
                limit,
                load: 0,
                shard: 0,
            },
        }
    }

    /// Returns the shard for a protein of this cost, and a shard that is now full.
    pub(crate) fn assign(&mut self, cost: u64) -> (usize, Option<usize>) {
        match self {
            Self::LeastLoaded(loads) => {
                let Some(mut least) = loads.peek_mut() else {
                    unreachable!("there is at least one shard");
                };
                let Reverse((load, shard)) = *least;
                *least = Reverse((load + cost, shard));
                (shard, None)
            }
            Self::Sequential { limit, load, shard } => {
                let full = (*load > 0 && *load + cost > limit.of(*shard)).then_some(*shard);
                if full.is_some() {
                    (*shard, *load) = (*shard + 1, 0);
                }
                *load += cost;
                (*shard, full)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::num::NonZero;

    use super::*;

    fn least_loaded(count: u32) -> Assigner {
        Assigner::new(ShardTarget::Shards(NonZero::new(count).expect("a count")))
    }

    fn sequential(limit: &str) -> Assigner {
        Assigner::new(ShardTarget::MaxTokens(limit.parse().expect("a limit")))
    }

    #[test]
    fn ties_go_to_the_lowest_index() {
        let mut shards = least_loaded(3);
        let taken: Vec<usize> = [5, 5, 5, 1, 9, 1].map(|cost| shards.assign(cost).0).into();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_protein_above_the_limit_has_a_shard_of_its_own() {
        let mut shards = sequential("10");
        let taken: Vec<usize> = [4, 6, 1, 25, 3, 7, 1]
            .map(|cost| shards.assign(cost).0)
            .into();
        assert_eq!(taken, [0, 0, 1, 2, 3, 3, 4]);
    }

    /// Proteins of 400 tokens, of which a shard has the most: the number of shards, and the tokens of the smallest and the largest.
    #[test]
    fn growing_shards_are_many_for_small_inputs_and_few_for_large_ones() {
        for (limit, tokens, expected) in [
            ("20000000", 11_000_000, (1, 11_000_000, 11_000_000)),
            ("500000+25000", 40_000, (1, 40_000, 40_000)),
            ("500000+25000", 500_000, (1, 500_000, 500_000)),
            ("500000+25000", 500_400, (2, 400, 500_000)),
            ("500000+25000", 11_000_000, (17, 1_600, 874_800)),
            ("500000+25000", 205_000_000, (111, 136_000, 3_224_800)),
            ("500000+25000", 1_000_000_000, (265, 126_400, 7_074_800)),
        ] {
            let mut shards = sequential(limit);
            let mut loads: Vec<u64> = Vec::new();
            for _ in 0..tokens / 400 {
                let (shard, _) = shards.assign(400);
                loads.resize(shard + 1, 0);
                loads[shard] += 400;
            }
            let ends = (loads.iter().min(), loads.iter().max());
            let found = (loads.len(), *ends.0.expect("one"), *ends.1.expect("one"));
            assert_eq!(found, expected, "{tokens} tokens, at most {limit}");
        }
    }

    proptest! {
        #[test]
        fn loads_differ_by_at_most_one_cost(
            costs in proptest::collection::vec(1u64..5000, 1..400),
            count in 1u32..20,
        ) {
            let mut shards = least_loaded(count);
            let mut loads = vec![0; count as usize];
            for &cost in &costs {
                loads[shards.assign(cost).0] += cost;
            }
            let (least, most) = (loads.iter().min(), loads.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= *costs.iter().max().unwrap());
        }

        #[test]
        fn shards_are_filled_in_order_up_to_the_limit(
            costs in proptest::collection::vec(1u64..300, 1..400),
            limit in 3u64..1000,
            growth in 0u64..50,
        ) {
            let mut shards = sequential(&format!("{limit}+{growth}"));
            let mut loads: Vec<Vec<u64>> = Vec::new();
            for &cost in &costs {
                let (shard, full) = shards.assign(cost);
                prop_assert_eq!(full, (shard == loads.len() && shard > 0).then(|| shard - 1));
                prop_assert!(shard == loads.len() || shard + 1 == loads.len());
                loads.resize(shard + 1, Vec::new());
                loads[shard].push(cost);
            }
            for (shard, costs) in loads.iter().enumerate() {
                let limit = limit + growth * shard as u64;
                let load: u64 = costs.iter().sum();
                prop_assert!(load <= limit || costs.len() == 1);
                if let Some(next) = loads.get(shard + 1) {
                    prop_assert!(load + next[0] > limit);
                }
            }
        }
    }
}
