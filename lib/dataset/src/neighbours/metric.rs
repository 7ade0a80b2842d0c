//! How near two vectors are.

use std::array;

/// How near two vectors are.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray, strum::EnumMessage,
)]
#[strum(serialize_all = "lowercase")]
pub enum Metric {
    /// Cosine of the angle, from -1 to 1; larger is nearer
    Cosine,
    /// Inner product; larger is nearer
    Dot,
    /// Euclidean distance; smaller is nearer
    Euclidean,
}

impl Metric {
    /// Returns a number that is larger the nearer two vectors are, in f64, given the squares of their norms. Equal vectors have equal
    /// numbers, on any CPU.
    pub(super) fn nearness(self, [one, other]: [&[f32]; 2], squares: [f64; 2]) -> f64 {
        let nearness = match self {
            Self::Cosine => {
                let norms = (squares[0] * squares[1]).sqrt();
                (dot(one, other) / norms).clamp(-1.0, 1.0)
            }
            Self::Dot => dot(one, other),
            Self::Euclidean => -sum(one, other, |one, other| (one - other).powi(2)),
        };
        // No negative zero, which would be less than zero.
        nearness + 0.0
    }

    /// Returns the score that stands for a nearness.
    pub(super) fn score(self, nearness: f64) -> f64 {
        match self {
            Self::Cosine | Self::Dot => nearness,
            Self::Euclidean => nearness.abs().sqrt(),
        }
    }

    /// Returns the factor and the bias of a target in products with queries. Such products order the targets of a query like nearness.
    pub(super) fn packed(self, square: f64) -> (f64, f64) {
        match self {
            Self::Cosine => (1.0 / square.sqrt(), 0.0),
            Self::Dot => (1.0, 0.0),
            Self::Euclidean => (1.0, -square / 2.0),
        }
    }

    /// Returns the product of a query that stands for a nearness.
    pub(super) fn product(self, nearness: f64, square: f64) -> f64 {
        match self {
            Self::Cosine => nearness * square.sqrt(),
            Self::Dot => nearness,
            Self::Euclidean => f64::midpoint(nearness, square),
        }
    }

    /// Bounds the sums in a product of a query with a target that is no longer than `longest`, given the squares of their norms.
    /// Rounding errors are relative to it.
    pub(super) fn reach(self, square: f64, longest: f64) -> f64 {
        let product = (square * longest).sqrt();
        match self {
            Self::Cosine => square.sqrt(),
            Self::Dot => product,
            Self::Euclidean => product + longest,
        }
    }
}

/// The inner product in f64.
pub(crate) fn dot(one: &[f32], other: &[f32]) -> f64 {
    sum(one, other, |one, other| one * other)
}

/// Adds `term` of each pair of values, always in the same order.
#[inline(always)]
fn sum(one: &[f32], other: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    const LANES: usize = 8;
    let (one, rest) = one.as_chunks::<LANES>();
    let (other, other_rest) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in one.iter().zip(other) {
        let terms: [f64; LANES] = array::from_fn(|i| term(one[i].into(), other[i].into()));
        sums = array::from_fn(|i| sums[i] + terms[i]);
    }
    for ((sum, &one), &other) in sums.iter_mut().zip(rest).zip(other_rest) {
        *sum += term(one.into(), other.into());
    }
    sums.iter().sum()
}
