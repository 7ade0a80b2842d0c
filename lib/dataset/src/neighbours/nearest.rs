//! The nearest targets of a query.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A target of a query. The greatest is the nearest; of equally near ones, the first in the order of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) nearness: f64,
    /// Ordinal and start.
    pub(super) key: (u64, u32),
}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        let nearer = self.nearness.total_cmp(&other.nearness);
        nearer.then_with(|| other.key.cmp(&self.key))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Hit {}

/// The nearest targets so far. The order in which they come does not matter.
#[derive(Debug, Default)]
pub(super) struct Nearest(BinaryHeap<Reverse<Hit>>);

impl Nearest {
    /// Returns the nearness of the worst of `top` targets: another must be nearer. `None` while there are fewer.
    pub(super) fn least(&self, top: usize) -> Option<f64> {
        let full = self.0.len() >= top;
        full.then(|| {
            self.0
                .peek()
                .map_or(f64::NEG_INFINITY, |worst| worst.0.nearness)
        })
    }

    /// Adds a target if it is among the nearest `top`.
    pub(super) fn add(&mut self, hit: Hit, top: usize) {
        if self.0.len() < top {
            self.0.push(Reverse(hit));
        } else if let Some(mut worst) = self.0.peek_mut()
            && hit > worst.0
        {
            *worst = Reverse(hit);
        }
    }

    /// Returns the targets, the nearest first.
    pub(super) fn into_sorted(self) -> impl Iterator<Item = Hit> {
        let sorted = self.0.into_sorted_vec().into_iter();
        sorted.map(|Reverse(hit)| hit)
    }
}
