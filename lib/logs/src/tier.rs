//! How bad a figure is.

use serde::Serialize;

use crate::thresholds::{
    GPU_CRITICAL_BELOW, GPU_MILD_BELOW, IDLE_CRITICAL_ABOVE, IDLE_MILD_ABOVE,
    PACKING_CRITICAL_BELOW, PACKING_MILD_BELOW,
};

/// How much a finding costs.
///
/// ```
/// use plmkit_logs::Tier;
///
/// let tiers = [0.49, 0.5, 0.79, 0.8].map(Tier::of_utilization);
/// assert_eq!(tiers, [Tier::Critical, Tier::Mild, Tier::Mild, Tier::None]);
/// assert_eq!([0.05, 0.06, 0.21].map(Tier::of_idle), [Tier::None, Tier::Mild, Tier::Critical]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Tier {
    /// Nothing to gain.
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

    /// Returns the tier of the share of the time in which a device has no work.
    pub fn of_idle(share: f64) -> Self {
        Self::below(-share, -IDLE_CRITICAL_ABOVE, -IDLE_MILD_ABOVE)
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
