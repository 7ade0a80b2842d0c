//! What held the clocks of a GPU down.

use std::collections::BTreeMap;

use plmkit_logs::Throttle;

/// Different reasons that are told apart; the driver has ten.
const MOST_REASONS: usize = 32;

/// Reasons that protect the hardware from heat or from its supply of power.
const SEVERE: [&str; 4] = [
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
];

/// Samples by what held the clocks down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ThrottleCount {
    /// Samples that say whether anything did.
    pub(super) samples: u64,
    /// Those in which something did.
    pub(super) any: u64,
    /// Those in which heat or the supply of power did.
    pub(super) severe: u64,
    /// By reason.
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
            } else if self.reasons.len() < MOST_REASONS {
                self.reasons.insert(reason.clone(), 1);
            }
        }
    }
}

/// Whether a reason protects the hardware: a power limit that was set does not.
pub(super) fn is_severe(reason: &str) -> bool {
    SEVERE.contains(&reason)
}
