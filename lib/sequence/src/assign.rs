//! Which shard a protein goes to. A cost is a number of tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Gives each protein to one of a fixed number of shards: the one with the least load, the first of equals.
///
/// The heaviest and the lightest shard then never differ by more than the largest single cost.
#[derive(Clone, Debug)]
pub struct LeastLoaded {
    loads: BinaryHeap<Reverse<(u64, usize)>>,
}

impl LeastLoaded {
    /// `shards` empty shards; at least one.
    pub fn new(shards: usize) -> Self {
        Self {
            loads: (0..shards.max(1))
                .map(|shard| Reverse((0, shard)))
                .collect(),
        }
    }

    /// The shard for a protein of this cost.
    pub fn assign(&mut self, cost: u64) -> usize {
        let Some(mut least) = self.loads.peek_mut() else {
            unreachable!("there is at least one shard");
        };
        let Reverse((load, shard)) = *least;
        *least = Reverse((load + cost, shard));
        shard
    }
}

/// Fills shards one after another: a new one begins where the next protein would take the last above the limit.
#[derive(Clone, Debug)]
pub struct Sequential {
    limit: u64,
    load: u64,
    shard: usize,
}

impl Sequential {
    /// Shards of at most `limit` tokens, unless one protein alone has more.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            load: 0,
            shard: 0,
        }
    }

    /// The shard that is being filled.
    pub fn current(&self) -> usize {
        self.shard
    }

    /// The shard for a protein of this cost.
    pub fn assign(&mut self, cost: u64) -> usize {
        if self.load > 0 && self.load + cost > self.limit {
            self.shard += 1;
            self.load = 0;
        }
        self.load += cost;
        self.shard
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ties_go_to_the_lowest_index() {
        let mut shards = LeastLoaded::new(3);
        let taken: Vec<usize> = [5, 5, 5, 1, 9, 1].map(|cost| shards.assign(cost)).into();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_protein_above_the_limit_has_a_shard_of_its_own() {
        let mut shards = Sequential::new(10);
        let taken: Vec<usize> = [4, 6, 1, 25, 3, 7, 1]
            .map(|cost| shards.assign(cost))
            .into();
        assert_eq!(taken, [0, 0, 1, 2, 3, 3, 4]);
    }

    proptest! {
        #[test]
        fn loads_differ_by_at_most_one_cost(
            costs in proptest::collection::vec(1u64..5000, 1..400),
            count in 1usize..20,
        ) {
            let mut shards = LeastLoaded::new(count);
            let mut loads = vec![0; count];
            for &cost in &costs {
                loads[shards.assign(cost)] += cost;
            }
            let (least, most) = (loads.iter().min(), loads.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= *costs.iter().max().unwrap());
        }

        #[test]
        fn shards_are_filled_in_order_up_to_the_limit(
            costs in proptest::collection::vec(1u64..300, 1..400),
            limit in 1u64..1000,
        ) {
            let mut shards = Sequential::new(limit);
            let mut loads: Vec<Vec<u64>> = Vec::new();
            for &cost in &costs {
                let shard = shards.assign(cost);
                prop_assert!(shard == loads.len() || shard + 1 == loads.len());
                loads.resize(shard + 1, Vec::new());
                loads[shard].push(cost);
            }
            for (shard, costs) in loads.iter().enumerate() {
                let load: u64 = costs.iter().sum();
                prop_assert!(load <= limit || costs.len() == 1);
                if let Some(next) = loads.get(shard + 1) {
                    prop_assert!(load + next[0] > limit);
                }
            }
        }
    }
}
