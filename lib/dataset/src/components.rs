//! Principal components of vectors, from a Krylov space of their covariance, which is never made.

use std::iter::zip;

use crate::neighbours::dot;

/// The most dimensions of the space. Components whose variances differ by less than a thousandth may be mixed.
const MAX_DIMENSIONS: usize = 200;
/// Dimensions between two checks whether the components are found.
const CHECKED_EVERY: usize = 20;
/// The error of a component that is small enough.
const ERROR: f64 = 1e-5;
/// A share of the variance that rounding leaves.
const ROUNDING: f64 = 1e-9;

/// The first two principal components of the rows of a matrix `(rows, dim)`, which is centred, each with its share of the variance;
/// `None` if the rows have no two directions. The largest weight of each is positive.
///
/// Block Lanczos with two vectors and full orthogonalization; Golub and Van Loan, Matrix Computations, 10.3.
pub(crate) fn components(rows: &mut [f32], dim: usize) -> Option<([Vec<f32>; 2], [f64; 2])> {
    let count = (rows.len() / dim) as f64;
    let mut mean = vec![0.0; dim];
    for row in rows.chunks_exact(dim) {
        add(&mut mean, 1.0 / count, row);
    }
    for (value, mean) in zip(rows.iter_mut(), mean.iter().cycle()) {
        *value = (f64::from(*value) - mean) as f32;
    }
    let total = dot(rows, rows);
    let mut basis = Vec::new();
    // Any start that is orthogonal to neither will do.
    for start in [1.0, 2.0] {
        let start = (1..=dim).map(|place| (start * place as f64).sin());
        extend(&mut basis, start.collect(), ROUNDING);
    }
    let mut projected: Vec<Vec<f64>> = Vec::new();
    loop {
        let product = multiply(rows, &basis[projected.len()]);
        projected.push(extend(&mut basis, product, ROUNDING * total));
        let size = projected.len();
        let is_last = size == basis.len() || size == MAX_DIMENSIONS;
        if !is_last && !size.is_multiple_of(CHECKED_EVERY) {
            continue;
        }
        let pairs = eigenpairs(&projected);
        let [(first, _), (second, _), ..] = &pairs[..] else {
            return None;
        };
        if [*first, *second]
            .iter()
            .any(|of| *of <= ROUNDING * total || of.is_nan())
        {
            return None;
        }
        let third = pairs.get(2).map_or(0.0, |(value, _)| *value);
        let gap = (first - second).min(second - third);
        let is_found = |(_, vector): &(f64, Vec<f64>)| residual(&projected, vector) <= ERROR * gap;
        if is_last || pairs[..2].iter().all(is_found) {
            let axes = [0, 1].map(|of| axis(&basis, &pairs[of].1));
            return Some((axes, [first / total, second / total]));
        }
    }
}

/// Multiplies a vector by the covariance of the rows, times their number.
fn multiply(rows: &[f32], vector: &[f64]) -> Vec<f64> {
    let mut product = vec![0.0; vector.len()];
    for row in rows.chunks_exact(vector.len()) {
        let along = zip(row, vector).map(|(&one, other)| f64::from(one) * other);
        add(&mut product, along.sum(), row);
    }
    product
}

/// Adds to an orthonormal basis the direction in which a vector leaves its span, unless it leaves by less than `least`. Returns the
/// vector in the basis.
fn extend(basis: &mut Vec<Vec<f64>>, mut vector: Vec<f64>, least: f64) -> Vec<f64> {
    let mut weights = vec![0.0; basis.len()];
    // Once more, against rounding.
    for _ in 0..2 {
        for (own, weight) in zip(&*basis, &mut weights) {
            let along: f64 = zip(own, &vector).map(|(one, other)| one * other).sum();
            *weight += along;
            zip(&mut vector, own).for_each(|(value, own)| *value -= along * own);
        }
    }
    let norm = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    if norm > least {
        for value in &mut vector {
            *value /= norm;
        }
        basis.push(vector);
        weights.push(norm);
    }
    weights
}

/// How far the product of an eigenvector of the projection leaves the space.
fn residual(projected: &[Vec<f64>], vector: &[f64]) -> f64 {
    let size = projected.len();
    let outside = |of: usize| -> f64 {
        let products = zip(projected, vector);
        let weight = |column: &Vec<f64>| column.get(of).copied().unwrap_or_default();
        products.map(|(column, value)| weight(column) * value).sum()
    };
    let most = projected.last().map_or(0, Vec::len);
    (size..most)
        .map(|of| outside(of).powi(2))
        .sum::<f64>()
        .sqrt()
}

/// The eigenvalues of a symmetric matrix, the largest first, with their vectors: by rotations after Jacobi. Of its columns, what is
/// below the diagonal is read, as far as they have it.
fn eigenpairs(columns: &[Vec<f64>]) -> Vec<(f64, Vec<f64>)> {
    let size = columns.len();
    let value = |row: usize, column: usize| columns[column.min(row)].get(row.max(column)).copied();
    let cells = |row| (0..size).map(move |column| value(row, column).unwrap_or_default());
    let mut matrix: Vec<Vec<f64>> = (0..size).map(|row| cells(row).collect()).collect();
    let unit = |row| (0..size).map(move |column| f64::from(u8::from(row == column)));
    let mut vectors: Vec<Vec<f64>> = (0..size).map(|row| unit(row).collect()).collect();
    let largest = (0..size).map(|of| matrix[of][of].abs()).fold(0.0, f64::max);
    loop {
        let mut is_diagonal = true;
        for one in 0..size {
            for other in one + 1..size {
                let across = matrix[one][other];
                if across.abs() <= f64::EPSILON * largest {
                    continue;
                }
                is_diagonal = false;
                let difference = matrix[other][other] - matrix[one][one];
                let (sin, cos) = (0.5 * (2.0 * across / difference).atan()).sin_cos();
                for row in &mut matrix {
                    (row[one], row[other]) = (
                        cos * row[one] - sin * row[other],
                        sin * row[one] + cos * row[other],
                    );
                }
                for rows in [&mut matrix, &mut vectors] {
                    let (above, below) = rows.split_at_mut(other);
                    for (above, below) in zip(&mut above[one], &mut below[0]) {
                        (*above, *below) =
                            (cos * *above - sin * *below, sin * *above + cos * *below);
                    }
                }
            }
        }
        if is_diagonal {
            break;
        }
    }
    let pairs = vectors.into_iter().enumerate();
    let mut pairs: Vec<_> = pairs.map(|(of, vector)| (matrix[of][of], vector)).collect();
    pairs.sort_by(|one, other| other.0.total_cmp(&one.0));
    pairs
}

/// The direction that a vector of the space has outside, with its largest weight positive.
fn axis(basis: &[Vec<f64>], vector: &[f64]) -> Vec<f32> {
    let mut axis = vec![0.0; basis[0].len()];
    for (own, weight) in zip(basis, vector) {
        zip(&mut axis, own).for_each(|(value, own)| *value += weight * own);
    }
    let larger = |one: f64, other: f64| if other.abs() > one.abs() { other } else { one };
    let sign = axis.iter().copied().reduce(larger).map_or(1.0, f64::signum);
    axis.iter().map(|value| (sign * value) as f32).collect()
}

/// Adds a multiple of a row.
fn add(sum: &mut [f64], factor: f64, row: &[f32]) {
    for (sum, &value) in zip(sum, row) {
        *sum += factor * f64::from(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_components_are_the_directions_of_most_variance() {
        let dim = 40;
        let direction = |k: usize| -> Vec<f64> {
            let mut direction = vec![0.0; dim];
            (direction[k], direction[k + 1]) = (0.8, -0.6);
            direction
        };
        // Coordinates that are not correlated, of variances 9, 4 and 1, on three orthogonal directions and a mean.
        let coordinates: [(usize, f64, [f64; 4]); 3] = [
            (3, 3.0, [1.0, -1.0, 1.0, -1.0]),
            (5, 2.0, [1.0, 1.0, -1.0, -1.0]),
            (7, 1.0, [1.0, -1.0, -1.0, 1.0]),
        ];
        let mut rows = Vec::new();
        for row in 0..4 {
            let mut values = vec![100.0; dim];
            for (k, size, signs) in &coordinates {
                let along = size * signs[row];
                values
                    .iter_mut()
                    .zip(direction(*k))
                    .for_each(|(value, part)| *value += along * part);
            }
            rows.extend(values.iter().map(|&value| value as f32));
        }
        let ([first, second], shares) = components(&mut rows, dim).expect("two directions");
        for (axis, k) in [(&first, 3), (&second, 5)] {
            let expected: Vec<f32> = direction(k).iter().map(|&value| value as f32).collect();
            assert!((dot(axis, &expected).abs() - 1.0).abs() < 1e-5, "{k}");
            let largest = axis
                .iter()
                .copied()
                .reduce(|one, other| if other.abs() > one.abs() { other } else { one });
            assert!(largest > Some(0.0));
        }
        assert!((shares[0] - 9.0 / 14.0).abs() < 1e-5 && (shares[1] - 4.0 / 14.0).abs() < 1e-5);
    }

    #[test]
    fn equal_rows_have_no_components() {
        assert!(components(&mut [1.5; 30], 10).is_none());
        let mut line: Vec<f32> = (0..30).map(|i| (i / 10) as f32).collect();
        assert!(components(&mut line, 10).is_none());
    }

    #[test]
    fn variances_that_are_nearly_equal_are_told_apart() {
        // Independent random coordinates.
        let (dim, count) = (60, 500);
        let mut state = 7_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut rows: Vec<f32> = (0..count * dim).map(|_| random()).collect();
        let (axes, shares) = components(&mut rows, dim).expect("two directions");
        assert!(shares[0] > shares[1] && shares[1] > 1.0 / dim as f64);
        // Each axis is an eigenvector: the covariance turns it nowhere.
        for (found, share) in axes.iter().zip(shares) {
            let along: Vec<f64> = found.iter().map(|&value| value.into()).collect();
            let product = multiply(&rows, &along);
            let scale = share * dot(&rows, &rows);
            let off = product
                .iter()
                .zip(&along)
                .map(|(product, value)| (product / scale - value).powi(2));
            assert!(off.sum::<f64>().sqrt() < 1e-5);
        }
        // Two directions of the same variance span a plane.
        let mut triangle = [1.0, 0.0, -0.5, 0.75_f32.sqrt(), -0.5, -0.75_f32.sqrt()];
        let (_, shares) = components(&mut triangle, 2).expect("a plane");
        assert!((shares[0] - 0.5).abs() < 1e-6 && (shares[1] - 0.5).abs() < 1e-6);
    }
}
