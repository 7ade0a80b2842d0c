//! Where proteins go.

use crate::assign::{LeastLoaded, Sequential};
use crate::config::Target;
use crate::protein::Protein;
use crate::shard_key::ShardKey;

/// Gives each protein its shard; those that are kept whole above the maximum have shards of their own.
pub(crate) struct Assignment {
    usual: Assigner,
    long: Assigner,
}

enum Assigner {
    LeastLoaded(LeastLoaded),
    Sequential(Sequential),
}

impl Assignment {
    pub(crate) fn new(target: Target) -> Self {
        let assigner = || match target {
            Target::Shards(count) => Assigner::LeastLoaded(LeastLoaded::new(count.get())),
            Target::MaxTokens(tokens) => Assigner::Sequential(Sequential::new(tokens.get())),
        };
        Self {
            usual: assigner(),
            long: assigner(),
        }
    }

    /// The shard for a protein, and one that thereby is full.
    pub(crate) fn assign(&mut self, protein: &Protein) -> (ShardKey, Option<ShardKey>) {
        let long = protein.split_off;
        let assigner = if long {
            &mut self.long
        } else {
            &mut self.usual
        };
        let cost = protein.tokens();
        match assigner {
            Assigner::LeastLoaded(shards) => (
                ShardKey {
                    long,
                    index: shards.assign(cost),
                },
                None,
            ),
            Assigner::Sequential(shards) => {
                let before = shards.current();
                let index = shards.assign(cost);
                let full = (index > before).then_some(ShardKey {
                    long,
                    index: before,
                });
                (ShardKey { long, index }, full)
            }
        }
    }
}
