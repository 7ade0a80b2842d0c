//! Sums over vectors, in double precision.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};

/// Sums kept side by side, so that the compiler can use whole registers.
const LANES: usize = 8;

/// The scalar product of two vectors of the same length.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    product(a, b)
}

/// The same in the precision of `T`.
pub(crate) fn product<T>(a: &[f32], b: &[f32]) -> T
where
    T: Copy + Default + From<f32> + Add<Output = T> + AddAssign + Mul<Output = T> + Sum,
{
    let mut sums = [T::default(); LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest = rest.map(|(&x, &y)| T::from(x) * T::from(y));
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += T::from(x[lane]) * T::from(y[lane]);
        }
    }
    sums.into_iter().sum::<T>() + rest.sum()
}

/// The cosine of the angle between two vectors of the same length, or `None` where it is not defined: one of
/// them is zero or not finite. Two zero vectors agree: the deviation over a single residue is one.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let (a_square, b_square) = (dot(a, a), dot(b, b));
    if a_square == 0.0 && b_square == 0.0 {
        return Some(1.0);
    }
    // One root of the product, since the root of a square is exact: of a vector with itself this is exactly 1.
    let cosine = dot(a, b) / (a_square * b_square).sqrt();
    cosine.is_finite().then(|| cosine.clamp(-1.0, 1.0))
}

/// The median, the lower of two; `None` of nothing.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dot_takes_every_element_once() {
        for length in [0, 1, 7, 8, 9, 100] {
            let a: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let b: Vec<f32> = (0..length).map(|i| (i % 3) as f32 - 1.0).collect();
            let plain: f64 = a
                .iter()
                .zip(&b)
                .map(|(&x, &y)| f64::from(x) * f64::from(y))
                .sum();
            assert!((dot(&a, &b) - plain).abs() < 1e-9, "{length}");
        }
    }

    #[test]
    fn cosine_knows_directions_and_its_limits() {
        assert_eq!(cosine(&[3.0, 4.0], &[6.0, 8.0]), Some(1.0));
        assert_eq!(cosine(&[3.0, 4.0], &[-3.0, -4.0]), Some(-1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), Some(0.0));
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 1.0]), None);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, -0.0]), Some(1.0));
        assert_eq!(cosine(&[f32::NAN, 0.0], &[0.0, 1.0]), None);
        assert_eq!(cosine(&[f32::INFINITY, 0.0], &[1.0, 1.0]), None);
        assert_eq!(cosine(&[f32::MAX, 0.0], &[f32::MAX, 0.0]), Some(1.0));
        let tiny = f32::from_bits(1);
        assert_eq!(cosine(&[tiny, 0.0], &[tiny, 0.0]), Some(1.0));
    }

    proptest! {
        #[test]
        fn a_vector_agrees_with_itself_exactly(vector in vec(-1e30_f32..1e30, 1..50)) {
            let opposite: Vec<f32> = vector.iter().map(|value| -value).collect();
            prop_assert_eq!(cosine(&vector, &vector), Some(1.0));
            if vector.iter().any(|&value| value != 0.0) {
                prop_assert_eq!(cosine(&vector, &opposite), Some(-1.0));
            }
        }
    }
}
