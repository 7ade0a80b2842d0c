//! How much of a time the samples of a GPU cover.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use plmkit_logs::thresholds::{COVERAGE_ABSENT_BELOW, COVERAGE_MARKED_BELOW};

/// Ranges of a [`TimeSet`]. Beyond it, the earliest gap is forgotten.
const MAX_RANGES: usize = 4096;

/// A time of a run that no reading of its GPU stands for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gap {
    /// Its start, in seconds of the run; the time between attempts is left out.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
}

/// Times in microseconds, as disjoint ranges. Rows that are read twice, or late, count once.
#[derive(Clone, Debug, Default)]
pub(super) struct TimeSet {
    /// The end of each range, by its start.
    ranges: BTreeMap<i64, i64>,
}

impl TimeSet {
    /// Adds a time, which must not be empty. Returns those parts of it that were not in the set.
    pub(super) fn insert(&mut self, time: Range<i64>) -> Vec<Range<i64>> {
        let fresh = self.gaps(&time);
        let (mut from, mut to) = (time.start, time.end);
        // Ranges that touch become one.
        while let Some((&start, &end)) = self.ranges.range(..=to).next_back()
            && end >= from
        {
            self.ranges.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.ranges.insert(from, to);
        if self.ranges.len() > MAX_RANGES
            && let Some((first, _)) = self.ranges.pop_first()
            && let Some((_, second_end)) = self.ranges.pop_first()
        {
            self.ranges.insert(first, second_end);
        }
        fresh
    }

    /// Returns the parts of a time that are not in the set. The time must not be empty.
    pub(super) fn gaps(&self, within: &Range<i64>) -> Vec<Range<i64>> {
        let before = self.ranges.range(..=within.start).next_back();
        let mut at = before.map_or(within.start, |(_, &end)| end.max(within.start));
        let mut gaps = Vec::new();
        for (&start, &end) in self.ranges.range(within.start + 1..within.end) {
            gaps.push(at..start);
            at = end;
        }
        gaps.push(at..within.end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }
}

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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_is_there_already_is_not_fresh() {
        let mut set = TimeSet::default();
        for (time, fresh) in [
            (10..20, Some(10..20)),
            (30..40, Some(30..40)),
            (15..35, Some(20..30)),
            (10..40, None),
        ] {
            assert_eq!(set.insert(time), fresh.as_slice());
        }
        assert_eq!(set.gaps(&(0..50)), [0..10, 40..50]);
    }

    #[test]
    fn memory_does_not_grow_without_end() {
        let mut set = TimeSet::default();
        for start in 0..10_000 {
            assert_eq!(set.insert(3 * start..3 * start + 1).len(), 1);
        }
        assert_eq!(set.ranges.len(), MAX_RANGES);
    }

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

    proptest! {
        #[test]
        fn it_is_a_set(times in prop::collection::vec((0_i64..60, 1_i64..9), 0..40)) {
            let (mut set, mut expected) = (TimeSet::default(), BTreeSet::new());
            for (start, length) in times {
                let fresh: Vec<i64> = set.insert(start..start + length).into_iter().flatten().collect();
                let all: Vec<i64> = (start..start + length).filter(|at| expected.insert(*at)).collect();
                prop_assert_eq!(fresh, all);
            }
            let gaps: Vec<i64> = set.gaps(&(0..70)).into_iter().flatten().collect();
            prop_assert_eq!(gaps, (0..70).filter(|at| !expected.contains(at)).collect::<Vec<_>>());
        }
    }
}
