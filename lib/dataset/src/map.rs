//! A map of vectors: a sample of the rows on their first two principal components.

use std::iter;

use plmkit_contract::{Column, KeyColumns, Pooling, Stop};
use plmkit_store::StoreError;

use crate::neighbours::dot;
use crate::{Dataset, DatasetError, Merge, Vectors};

/// The most steps that look for the components.
const STEPS: usize = 300;

/// The vectors of some proteins in the plane in which they differ most.
#[derive(Clone, Debug)]
pub struct VectorMap {
    /// The column of the vectors.
    pub column: String,
    /// The rows of the datasets, of which the points are some.
    pub rows: u64,
    /// The shares of the variance of the vectors along both axes, 0 to 1.
    pub shares: [f64; 2],
    /// The points, by the datasets.
    pub points: Vec<Vec<MapPoint>>,
}

/// A protein: its place, and its id.
pub type MapPoint = ([f64; 2], String);

/// Draws a map of datasets that were made alike, with at most `most` points, equally spaced in the input; `None` if fewer than three
/// proteins have vectors, or all the same. The signs of the axes are those with which the largest weight of each is positive.
///
/// # Errors
/// If the datasets were made in different ways, or a file is damaged.
pub fn map_vectors(
    datasets: Vec<Dataset>,
    most: u64,
    stop: &Stop,
) -> Result<Option<VectorMap>, DatasetError> {
    let Some(first) = datasets.first() else {
        return Ok(None);
    };
    let columns = &first.layout().columns;
    let is_pooled = |column: &Column| matches!(column, Column::Pooled { .. });
    let is_mean =
        |column: &Column| matches!(column, Column::Pooled { pool, .. } if *pool == Pooling::Mean);
    let place = columns.iter().rposition(is_mean);
    let Some(place) = place.or_else(|| columns.iter().rposition(is_pooled)) else {
        return Ok(None);
    };
    let first = &first.parts[0];
    for part in datasets.iter().flat_map(|dataset| &dataset.parts) {
        if let Some(what) = part.difference(first) {
            return Err(DatasetError::content(&part.path, what));
        }
    }
    let folder = datasets[0].path.clone();
    let Some(joined) = Dataset::join(&folder, datasets) else {
        return Ok(None);
    };
    let (column, dim) = (
        joined.layout().columns[place].to_string(),
        joined.layout().dim,
    );
    let (mut part, mut starts) = (0, Vec::new());
    for sample in joined.samples() {
        starts.push(joined.parts[part].offset);
        part += sample.parts.len();
    }
    let groups = joined.parts.iter().flat_map(|part| &part.groups);
    let end = groups.map(|group| group.ordinals.1 + 1).max().unwrap_or(0);
    let spacing = end.div_ceil(most.max(1)).max(1);
    let chosen: Vec<u64> = (0..end).step_by(spacing as usize).collect();
    let mut merge = Merge::new(&joined.parts, [place], stop).of_ordinals(&chosen);
    let (mut values, mut found) = (Vec::new(), Vec::new());
    while let Some(rows) = merge.next_rows()? {
        let vectors = Vectors::new(&rows[&*column]);
        for (row, key) in KeyColumns::new(&rows).rows().enumerate() {
            let vector = vectors.row(row);
            if key.start == 0 && dot(vector, vector).is_finite() {
                values.extend_from_slice(vector);
                let dataset = starts.partition_point(|&start| start <= key.ordinal) - 1;
                found.push((dataset, key.id.to_owned()));
            }
        }
    }
    StoreError::check(stop)?;
    let Some((axes, shares)) = components(&mut values, dim).filter(|_| found.len() > 2) else {
        return Ok(None);
    };
    let mut points = vec![Vec::new(); starts.len()];
    for (vector, (dataset, id)) in values.chunks_exact(dim).zip(found) {
        points[dataset].push((axes.each_ref().map(|axis| dot(vector, axis)), id));
    }
    let rows = joined.rows();
    Ok(Some(VectorMap {
        column,
        rows,
        shares,
        points,
    }))
}

/// The first two principal components of the rows of a matrix `(rows, dim)`, which is centred, each with its share of the variance;
/// `None` if the rows have no two directions. By orthogonal iteration with `xᵀx`, which is never made.
fn components(rows: &mut [f32], dim: usize) -> Option<([Vec<f32>; 2], [f64; 2])> {
    let count = (rows.len() / dim) as f64;
    let mut mean = vec![0.0; dim];
    for row in rows.chunks_exact(dim) {
        add(&mut mean, 1.0 / count, row);
    }
    for (value, mean) in rows.iter_mut().zip(mean.iter().cycle()) {
        *value = (f64::from(*value) - mean) as f32;
    }
    let total = dot(rows, rows);
    // Any start that is orthogonal to neither will do.
    let start = |of: f64| (1..=dim).map(move |place| (of * place as f64).sin() as f32);
    let mut axes: [Vec<f32>; 2] = [start(1.0).collect(), start(2.0).collect()];
    let mut shares = [0.0; 2];
    for _ in 0..STEPS {
        let mut products = [vec![0.0; dim], vec![0.0; dim]];
        for row in rows.chunks_exact(dim) {
            for (product, axis) in products.iter_mut().zip(&axes) {
                add(product, dot(row, axis), row);
            }
        }
        let [first, second] = &mut products;
        let along = inner(first, second) / inner(first, first);
        second
            .iter_mut()
            .zip(&*first)
            .for_each(|(value, first)| *value -= along * first);
        let mut change = 0.0;
        for ((axis, product), share) in axes.iter_mut().zip(&products).zip(&mut shares) {
            let norm = inner(product, product).sqrt();
            *share = norm / total;
            // What is left of rounding is no direction.
            if *share <= 1e-9 || share.is_nan() {
                return None;
            }
            for (value, product) in axis.iter_mut().zip(product) {
                let found = (product / norm) as f32;
                change += (found - *value).powi(2);
                *value = found;
            }
        }
        if change < 1e-11 {
            break;
        }
    }
    for axis in &mut axes {
        let largest = axis.iter().copied();
        let largest =
            largest.reduce(|one, other| if other.abs() > one.abs() { other } else { one });
        let sign = largest.map_or(1.0, f32::signum);
        for value in axis {
            *value *= sign;
        }
    }
    Some((axes, shares))
}

/// Adds a multiple of a row.
fn add(sum: &mut [f64], factor: f64, row: &[f32]) {
    for (sum, &value) in sum.iter_mut().zip(row) {
        *sum += factor * f64::from(value);
    }
}

fn inner(one: &[f64], other: &[f64]) -> f64 {
    iter::zip(one, other).map(|(one, other)| one * other).sum()
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
}
