//! How much of a time the samples of a GPU cover.

use plmkit_logs::thresholds::{COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW};

/// Returns the share of `time_us` that `covered_us` is; `None` if the time is unknown.
pub(super) fn coverage(covered_us: i64, time_us: i64) -> Option<f64> {
    (time_us > 0).then(|| (covered_us as f64 / time_us as f64).min(1.0))
}

/// Whether a figure with this coverage may be shown.
pub(super) fn is_enough(coverage: Option<f64>) -> bool {
    coverage.is_some_and(|coverage| coverage >= COVERAGE_ABSENT_BELOW)
}

/// Whether a figure with this coverage is of a part of the time only.
pub(super) fn is_partial(coverage: Option<f64>) -> bool {
    coverage.is_some_and(|coverage| coverage < COVERAGE_MARKED_BELOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coverage_at_a_threshold_is_not_below_it() {
        let judged = |covered| {
            let coverage = coverage(covered, 1000);
            (is_enough(coverage), is_partial(coverage))
        };
        let found = [499, 500, 899, 900].map(judged);
        assert_eq!(
            found,
            [(false, true), (true, true), (true, true), (true, false)]
        );
        assert_eq!(coverage(5, 0), None);
    }
}
