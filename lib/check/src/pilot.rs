//! Where the vectors of a file lie, from a sample of them, so that each can be measured against the others in one pass.

use plmkit_contract::StoreDtype;

use crate::vector::{cosine, dot};

/// The first rows of a file, from which the pilot is estimated.
pub const PILOT_ROWS: usize = 2048;

/// So many of them, evenly spaced, are enough: medians over these are right to a tenth of the spread.
const SAMPLED_ROWS: usize = 512;

/// The least spread of a dimension as a share of the median spread of all: a dimension that hardly varies in the sample must
/// not decide alone.
const LEAST_SPREAD: f32 = 0.05;

/// What low precision alone may change, as a share of the typical size of a value.
const ROUNDING: f32 = 5e-3;

/// The least cosine with the centre as a share of the median cosine. That of vectors with another sign, or of noise, is 0 or less;
/// among 20,000 real proteins the smallest share was 0.5.
const LEAST_COSINE: f64 = 0.25;

/// Vectors that a common direction is taken from.
const MIN_VECTORS: usize = 200;

/// The median cosine with the centre from which on vectors share a direction.
const COMMON_DIRECTION: f64 = 0.5;

/// Centre and spread of each dimension of a column, estimated so that outliers do not count.
#[derive(Clone, Debug)]
pub(crate) struct Pilot {
    /// The median of each dimension.
    pub(crate) centre: Vec<f32>,
    /// One over the spread of each dimension: 1.4826 median absolute deviations.
    pub(crate) inverse_spread: Vec<f32>,
    centre_norm: f64,
    /// The least cosine with the centre that a vector should have; none where vectors share no direction.
    least_cosine: Option<f64>,
}

impl Pilot {
    /// The pilot of these vectors, each of `dim` values; vectors that are not finite are left out.
    pub(crate) fn new(vectors: &[&[f32]], dim: usize, dtype: StoreDtype) -> Self {
        let finite: Vec<&[f32]> = vectors
            .iter()
            .step_by(vectors.len().div_ceil(SAMPLED_ROWS).max(1))
            .copied()
            .filter(|vector| vector.iter().all(|value| value.is_finite()))
            .collect();
        let mut centre = Vec::with_capacity(dim);
        let mut spread = Vec::with_capacity(dim);
        let mut values = Vec::with_capacity(finite.len());
        // What rounding alone makes of equal values is no spread.
        let rounding = match dtype {
            StoreDtype::F32 => f32::EPSILON,
            StoreDtype::F16 => 1e-3,
        };
        for d in 0..dim {
            values.clear();
            values.extend(finite.iter().map(|vector| vector[d]));
            let middle = median(&mut values);
            for value in &mut values {
                *value = (*value - middle).abs();
            }
            spread.push((1.4826 * median(&mut values)).max(rounding * middle.abs()));
            centre.push(middle);
        }
        let mut sizes: Vec<f32> = centre.iter().map(|value| value.abs()).collect();
        let least = (LEAST_SPREAD * median(&mut spread.clone()))
            .max(ROUNDING * median(&mut sizes))
            .max(f32::MIN_POSITIVE);
        let inverse_spread = spread
            .iter()
            .map(|&spread| 1.0 / spread.max(least))
            .collect();
        let cosines = finite.iter().filter_map(|vector| cosine(vector, &centre));
        let mut cosines: Vec<f32> = cosines.map(|cosine| cosine as f32).collect();
        let typical = f64::from(median(&mut cosines));
        Self {
            centre_norm: dot(&centre, &centre).sqrt(),
            centre,
            inverse_spread,
            least_cosine: (finite.len() >= MIN_VECTORS && typical >= COMMON_DIRECTION)
                .then_some(LEAST_COSINE * typical),
        }
    }

    /// The cosine of a vector of this norm with the centre, if it is less than that of any protein should be.
    pub(crate) fn odd_cosine(&self, vector: &[f32], norm: f64) -> Option<f64> {
        let least = self.least_cosine?;
        let cosine = dot(vector, &self.centre) / (norm * self.centre_norm);
        (cosine < least).then_some(cosine)
    }
}

/// The median, the lower of two; 0 of nothing.
pub(crate) fn median(values: &mut [f32]) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable_by(middle, f32::total_cmp).1
}
