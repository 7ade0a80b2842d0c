//! Throttling of a GPU.

use std::collections::BTreeMap;

use plmkit_logs::Throttle;

/// Reasons that are counted. The driver has ten.
const MAX_REASONS: usize = 32;

/// Time in microseconds, by the reason that held the clocks down.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ThrottleCount {
    /// Time with known reasons, or known to have none.
    pub(super) us: i64,
    /// Time with any reason.
    pub(super) any_us: i64,
    /// Time with a severe reason.
    pub(super) severe_us: i64,
    /// Time by reason.
    pub(super) reasons_us: BTreeMap<String, i64>,
}

impl ThrottleCount {
    pub(super) fn add(&mut self, throttle: &Throttle, us: i64) {
        let add = |sum: &mut i64, is_so| *sum = sum.saturating_add(if is_so { us } else { 0 });
        add(&mut self.us, true);
        add(&mut self.any_us, throttle.active());
        add(&mut self.severe_us, throttle.is_severe());
        for reason in &throttle.0 {
            if let Some(sum_us) = self.reasons_us.get_mut(reason) {
                add(sum_us, true);
            } else if self.reasons_us.len() < MAX_REASONS {
                self.reasons_us.insert(reason.clone(), us);
            }
        }
    }

    /// Returns a part of the time with known reasons as a share of it.
    pub(super) fn share(&self, us: i64) -> f64 {
        us as f64 / self.us.max(1) as f64
    }

    /// Returns the share of each reason.
    pub(super) fn shares(&self) -> BTreeMap<String, f64> {
        let reasons = self.reasons_us.iter();
        reasons
            .map(|(reason, &us)| (reason.clone(), self.share(us)))
            .collect()
    }
}
