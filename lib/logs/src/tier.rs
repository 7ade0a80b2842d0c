//! How bad a figure is.

use serde::Serialize;
use strum::{Display, IntoStaticStr, VariantNames};

use crate::thresholds::{
    GPU_CRITICAL_BELOW, GPU_MILD_BELOW, IDLE_CRITICAL_ABOVE, IDLE_JUDGED_FROM_S, IDLE_MILD_ABOVE,
    PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW, QUEUE_FULL_UP_TO, QUEUE_STARVED_ABOVE,
};

/// How much a finding costs.
///
/// ```
/// use plmkit_logs::Tier;
///
/// let tiers = [0.49, 0.5, 0.79, 0.8].map(Tier::of_utilization);
/// assert_eq!(tiers, [Tier::Critical, Tier::Mild, Tier::Mild, Tier::None]);
/// let idle = |share| Tier::of_idle(share, 10.0);
/// assert_eq!([0.05, 0.06, 0.21].map(idle), [Tier::None, Tier::Mild, Tier::Critical].map(Some));
/// assert_eq!(Tier::of_idle(0.21, 9.9), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Tier {
    /// Nothing to gain.
    #[default]
    #[strum(serialize = "ok")]
    None,
    /// Something to gain.
    Mild,
    /// Much to gain.
    Critical,
}

impl Tier {
    /// Returns the tier of the mean share of a batch that is filled.
    pub fn of_packing(mean: f64) -> Self {
        Self::below(mean, PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW)
    }

    /// Returns the tier of the share of the time in which a device has no work. `None` for a run of a few seconds: its start
    /// decides.
    pub fn of_idle(share: f64, run_s: f64) -> Option<Self> {
        let tier = || Self::below(-share, -IDLE_CRITICAL_ABOVE, -IDLE_MILD_ABOVE);
        (run_s >= IDLE_JUDGED_FROM_S).then(tier)
    }

    /// Returns the tier of the mean utilisation of a GPU that a run uses.
    pub fn of_utilization(mean: f64) -> Self {
        Self::below(mean, GPU_CRITICAL_BELOW, GPU_MILD_BELOW)
    }

    fn below(share: f64, critical: f64, mild: f64) -> Self {
        match share {
            _ if share < critical => Self::Critical,
            _ if share < mild => Self::Mild,
            _ => Self::None,
        }
    }
}

/// The state of a queue, by the share of the time that the device waits for batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueueState {
    /// The device finds its next batch ready: it waits for at most 1 % of the time.
    Full,
    /// The device waits for at most 5 % of the time.
    Normal,
    /// The device waits for longer.
    Starved,
}

impl QueueState {
    /// Returns the state of a queue before a device that waits for this share of the time.
    pub fn of(wait_share: f64) -> Self {
        match wait_share {
            _ if wait_share <= QUEUE_FULL_UP_TO => Self::Full,
            _ if wait_share <= QUEUE_STARVED_ABOVE => Self::Normal,
            _ => Self::Starved,
        }
    }
}
