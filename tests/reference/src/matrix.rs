//! Matrices.

use num_traits::Float;

/// A number type for the computation.
pub trait Real: Float + std::ops::AddAssign {
    /// Converts a stored value.
    fn from_f32(value: f32) -> Self;
    /// Converts a constant.
    fn constant(value: f64) -> Self;
    /// Returns the value in double precision.
    fn double(self) -> f64;
}

impl Real for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }

    fn constant(value: f64) -> Self {
        value as Self
    }

    fn double(self) -> f64 {
        self.into()
    }
}

impl Real for f64 {
    fn from_f32(value: f32) -> Self {
        value.into()
    }

    fn constant(value: f64) -> Self {
        value
    }

    fn double(self) -> f64 {
        self
    }
}

/// `(rows, channels)`, row by row.
pub type Matrix<T> = Vec<Vec<T>>;

/// Returns `x·Wᵀ + b` for `x` `(rows, in)`, `weight` `(out, in)` and `bias` `(out)`.
pub(crate) fn linear<T: Real>(x: &Matrix<T>, weight: &[f32], bias: &[f32]) -> Matrix<T> {
    let width = weight.len() / bias.len();
    let weight: Matrix<T> = weight.chunks_exact(width).map(reals).collect();
    let row = |x: &Vec<T>| {
        let sums = weight.iter().zip(bias);
        sums.map(|(weight, &bias)| dot(weight, x) + T::from_f32(bias))
            .collect()
    };
    x.iter().map(row).collect()
}

pub(crate) fn reals<T: Real>(values: &[f32]) -> Vec<T> {
    values.iter().map(|&value| T::from_f32(value)).collect()
}

pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    sum(a.iter().zip(b).map(|(&a, &b)| a * b))
}

pub(crate) fn sum<T: Real>(values: impl Iterator<Item = T>) -> T {
    values.fold(T::zero(), |sum, value| sum + value)
}

pub(crate) fn add<T: Real>(x: &mut Matrix<T>, other: &Matrix<T>) {
    for (x, other) in x.iter_mut().flatten().zip(other.iter().flatten()) {
        *x += *other;
    }
}

/// Returns all values in single precision.
pub fn flat<T: Real>(x: &Matrix<T>) -> Vec<f32> {
    x.iter()
        .flatten()
        .map(|value| value.double() as f32)
        .collect()
}
