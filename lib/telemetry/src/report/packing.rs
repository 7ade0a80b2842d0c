//! How full the batches were.

use serde::Serialize;

use plmkit_logs::Mean;
use plmkit_logs::event::BatchDone;
use plmkit_logs::thresholds::{PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW};

use super::Tier;

/// How full the batches were. The last batch of each file holds what was left over and is counted apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Packing {
    /// Batches that say how full they were, tails left out.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Tail {
    /// Batches.
    pub batches: u64,
    /// Mean utilisation.
    pub mean_utilization: Option<f64>,
}

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
        let tier = mean_utilization
            .map(|mean| Tier::below(mean, PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW));
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
            tier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(batches: &[(f64, bool)]) -> Packing {
        let mut count = PackingCount::default();
        for &(utilization, tail) in batches {
            count.add(&BatchDone {
                utilization: Some(utilization),
                tail,
                ..BatchDone::default()
            });
        }
        count.finish()
    }

    #[test]
    fn the_tail_is_counted_apart() {
        let packing = packing(&[(1.0, false), (0.9, false), (0.1, true)]);
        assert_eq!((packing.batches, packing.tail.batches), (2, 1));
        assert_eq!(packing.mean_utilization, Some(0.95));
        assert_eq!(packing.min_utilization, Some(0.9));
        assert_eq!(packing.tail.mean_utilization, Some(0.1));
        assert_eq!(packing.tier, Some(Tier::None));
    }

    #[test]
    fn thresholds_are_not_below_themselves() {
        let packing = packing(&[(0.85, false), (0.84, false), (0.80, false), (0.79, false)]);
        assert_eq!((packing.below_85, packing.below_80), (3, 1));
        assert_eq!(packing.tier, Some(Tier::Mild));
    }

    #[test]
    fn a_lone_tail_says_nothing_about_packing() {
        let packing = packing(&[(0.2, true)]);
        assert_eq!((packing.mean_utilization, packing.tier), (None, None));
    }

    #[test]
    fn utilization_is_computed_where_it_is_not_given() {
        let mut count = PackingCount::default();
        count.add(&BatchDone {
            tokens: 30,
            token_budget: Some(40),
            ..BatchDone::default()
        });
        count.add(&BatchDone {
            tokens: 30,
            ..BatchDone::default()
        });
        let packing = count.finish();
        assert_eq!((packing.batches, packing.mean_utilization), (1, Some(0.75)));
    }
}
