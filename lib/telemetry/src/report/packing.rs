//! Token utilisation of the batches.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;
use plmkit_logs::thresholds::{PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW};

use super::Tier;

/// Token utilisation of the batches. The last batch of each file holds the rest and is counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Packing {
    /// Batches with known utilisation, without last batches.
    pub batches: u64,
    /// Mean utilisation.
    pub mean_utilization: Option<f64>,
    /// Least utilisation.
    pub min_utilization: Option<f64>,
    /// Batches below 85 %.
    pub below_85: u64,
    /// Batches below 80 %; they are below 85 % as well.
    pub below_80: u64,
    /// Last batches of their files.
    pub tail: Tail,
    /// The tier of the mean.
    pub tier: Option<Tier>,
}

/// Last batches of their files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tail {
    /// Batches.
    pub batches: u64,
    /// Mean utilisation.
    pub mean_utilization: Option<f64>,
}

/// Sums over the batches of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct PackingCount {
    body: Mean,
    below_85: u64,
    below_80: u64,
    tail: Mean,
}

impl PackingCount {
    pub(super) fn add(&mut self, batch: &BatchDone) {
        let Some(utilization) = batch.packing() else {
            return;
        };
        if batch.tail {
            self.tail.add(utilization);
        } else {
            self.body.add(utilization);
            self.below_85 += u64::from(utilization < PACKING_MILD_BELOW);
            self.below_80 += u64::from(utilization < PACKING_CRITICAL_BELOW);
        }
    }

    pub(super) fn finish(&self) -> Packing {
        let mean_utilization = self.body.mean();
        Packing {
            batches: self.body.count(),
            mean_utilization,
            min_utilization: self.body.min(),
            below_85: self.below_85,
            below_80: self.below_80,
            tail: Tail {
                batches: self.tail.count(),
                mean_utilization: self.tail.mean(),
            },
            tier: mean_utilization
                .map(|mean| Tier::below(mean, PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(batches: &[(u64, bool)]) -> Packing {
        let mut count = PackingCount::default();
        for &(tokens, tail) in batches {
            count.add(&BatchDone {
                tokens,
                token_budget: Some(100),
                tail,
                ..BatchDone::default()
            });
        }
        // Neither a utilisation nor a budget.
        count.add(&BatchDone::default());
        count.finish()
    }

    #[test]
    fn the_tail_is_counted_apart() {
        let expected = Packing {
            batches: 2,
            mean_utilization: Some(0.95),
            min_utilization: Some(0.9),
            tail: Tail {
                batches: 1,
                mean_utilization: Some(0.1),
            },
            tier: Some(Tier::None),
            ..Packing::default()
        };
        assert_eq!(packing(&[(100, false), (90, false), (10, true)]), expected);
        let only_tail = packing(&[(20, true)]);
        assert_eq!((only_tail.mean_utilization, only_tail.tier), (None, None));
    }

    #[test]
    fn a_threshold_is_not_below_itself() {
        let packing = packing(&[(85, false), (84, false), (80, false), (79, false)]);
        assert_eq!((packing.below_85, packing.below_80), (3, 1));
        assert_eq!(packing.tier, Some(Tier::Mild));
    }
}
