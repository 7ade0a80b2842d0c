//! Throttling of a GPU.

use std::collections::BTreeMap;

use plmkit_logs::Throttle;

/// Reasons that are counted. The driver has ten.
const MAX_REASONS: usize = 32;

/// Samples by the reason that held the clocks down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ThrottleCount {
    /// Samples with known reasons, or known to have none.
    pub(super) samples: u64,
    /// Samples with any reason.
    pub(super) any: u64,
    /// Samples with a severe reason.
    pub(super) severe: u64,
    /// Samples by reason.
    pub(super) reasons: BTreeMap<String, u64>,
}

impl ThrottleCount {
    pub(super) fn add(&mut self, throttle: &Throttle) {
        self.samples += 1;
        self.any += u64::from(throttle.active());
        self.severe += u64::from(throttle.0.iter().any(|reason| is_severe(reason)));
        for reason in &throttle.0 {
            if let Some(count) = self.reasons.get_mut(reason) {
                *count += 1;
            } else if self.reasons.len() < MAX_REASONS {
                self.reasons.insert(reason.clone(), 1);
            }
        }
    }
}

/// Whether a reason protects the hardware. A configured power limit does not.
pub(super) fn is_severe(reason: &str) -> bool {
    Throttle::SEVERE.contains(&reason)
}
