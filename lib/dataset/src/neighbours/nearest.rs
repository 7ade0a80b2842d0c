//! The nearest targets of a query.

use std::collections::BinaryHeap;

/// A target of a query. The smallest is the nearest; of equally near ones, the first in the order of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    /// Smaller the nearer it is, in the order of [`f64::total_cmp`].
    farness: i64,
    /// Ordinal and start.
    pub(super) key: (u64, u32),
}

impl Hit {
    pub(super) fn new(nearness: f64, key: (u64, u32)) -> Self {
        let farness = !ordered(nearness.to_bits().cast_signed());
        Self { farness, key }
    }

    pub(super) fn nearness(self) -> f64 {
        f64::from_bits(ordered(!self.farness).cast_unsigned())
    }
}

/// Bits of numbers as integers in the order of the numbers, and back.
fn ordered(bits: i64) -> i64 {
    bits ^ ((bits >> 63) & i64::MAX)
}

/// Returns the nearness of the worst of the nearest `top` targets: another must be nearer. `None` while there are fewer.
pub(super) fn least(nearest: &BinaryHeap<Hit>, top: usize) -> Option<f64> {
    let worst = nearest.peek().filter(|_| nearest.len() >= top);
    worst.map(|worst| worst.nearness())
}

/// Adds a target if it is among the nearest `top`. The order in which they come does not matter.
pub(super) fn add(nearest: &mut BinaryHeap<Hit>, hit: Hit, top: usize) {
    if nearest.len() < top {
        nearest.push(hit);
    } else if let Some(mut worst) = nearest.peek_mut()
        && hit < *worst
    {
        *worst = hit;
    }
}
