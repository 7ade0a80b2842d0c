//! A sample of the vectors for pictures: lengths, norms, and a map of the two directions in which vectors vary most.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use plmkit_contract::{Column, RowKey};

/// Rows of the sample.
const ROWS: usize = 2000;

/// Rounds of power iteration for each direction. What is not separated by then is not one direction.
const ROUNDS: usize = 50;

/// A sample of the vectors of the first pooled column: the rows whose digests are smallest, whatever the files and their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MapSample {
    column: Option<Column>,
    /// By half of the digest of the sequence.
    rows: BTreeMap<u64, MapRow>,
    /// Rows of all lengths by the binary logarithm of the length.
    pub(crate) lengths: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct MapRow {
    id: String,
    length: u32,
    norm: f64,
    vector: Vec<f32>,
}

/// A row of the sample as a point.
#[derive(Clone, Debug, PartialEq)]
pub struct MapPoint<'a> {
    /// The record's id.
    pub id: &'a str,
    /// Residues of the protein.
    pub length: u32,
    /// Norm of the vector.
    pub norm: f64,
    /// Where the vector lies on the map: its first two principal components, of dimensions scaled to the same spread.
    pub place: (f64, f64),
}

impl MapSample {
    /// Adds a row and its vector in `column`, which is finite. Rows of other columns than the first are left out.
    pub(crate) fn add(&mut self, row: &RowKey, column: Column, vector: &[f32], norm: f64) {
        if *self.column.get_or_insert(column) != column {
            return;
        }
        let bin = row.length.max(1).ilog2();
        *self.lengths.entry(bin).or_default() += 1;
        let hash = row.digest.hash();
        let last = self.rows.last_key_value();
        if self.rows.len() >= ROWS && last.is_some_and(|(&last, _)| hash >= last) {
            return;
        }
        let sampled = MapRow {
            id: row.id.to_owned(),
            length: row.length,
            norm,
            vector: vector.to_vec(),
        };
        self.rows.insert(hash, sampled);
        if self.rows.len() > ROWS {
            self.rows.pop_last();
        }
    }

    /// Adds a sample of other files.
    pub fn merge(&mut self, other: Self) {
        let Some(column) = other.column else {
            return;
        };
        if *self.column.get_or_insert(column) != column {
            return;
        }
        self.rows.extend(other.rows);
        self.shrink(ROWS);
        for (bin, count) in other.lengths {
            *self.lengths.entry(bin).or_default() += count;
        }
    }

    /// Keeps so many rows at most.
    pub fn shrink(&mut self, rows: usize) {
        while self.rows.len() > rows {
            self.rows.pop_last();
        }
    }

    /// The ids of the rows.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.rows.values().map(|row| row.id.as_str())
    }

    /// The column that the sample is of.
    pub fn column(&self) -> Option<Column> {
        self.column
    }

    /// How many rows of all have a length from `2^bin` on and below `2^(bin + 1)`, for each bin.
    pub fn lengths(&self) -> &BTreeMap<u32, u64> {
        &self.lengths
    }

    /// The rows of the sample as points.
    pub fn points(&self) -> Vec<MapPoint<'_>> {
        let rows: Vec<&MapRow> = self.rows.values().collect();
        let dim = rows.first().map_or(0, |row| row.vector.len());
        let rows: Vec<&MapRow> = rows
            .into_iter()
            .filter(|row| row.vector.len() == dim)
            .collect();
        let mut vectors = scaled(&rows, dim);
        let [x, y] = [
            principal_component(&mut vectors),
            principal_component(&mut vectors),
        ];
        let points = rows.iter().zip(x.into_iter().zip(y));
        points
            .map(|(row, place)| MapPoint {
                id: &row.id,
                length: row.length,
                norm: row.norm,
                place,
            })
            .collect()
    }
}

/// The vectors of rows, with mean 0 and the same spread in each dimension.
fn scaled(rows: &[&MapRow], dim: usize) -> Vec<Vec<f64>> {
    let count = rows.len().max(1) as f64;
    let mut vectors: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.vector.iter().map(|&value| f64::from(value)).collect())
        .collect();
    for d in 0..dim {
        let mean = vectors.iter().map(|vector| vector[d]).sum::<f64>() / count;
        let squares: f64 = vectors
            .iter()
            .map(|vector| (vector[d] - mean).powi(2))
            .sum();
        let spread = (squares / count).sqrt().max(f64::MIN_POSITIVE);
        for vector in &mut vectors {
            vector[d] = (vector[d] - mean) / spread;
        }
    }
    vectors
}

/// The place of each vector along the direction in which they vary most, which is then taken out of them. Found by power
/// iteration, whose sign is chosen so that the first direction component is positive: pictures do not change from run to run.
fn principal_component(vectors: &mut [Vec<f64>]) -> Vec<f64> {
    let dim = vectors.first().map_or(0, Vec::len);
    let project = |vector: &[f64], direction: &[f64]| -> f64 {
        vector.iter().zip(direction).map(|(x, y)| x * y).sum()
    };
    let mut direction: Vec<f64> = (0..dim).map(|d| 1.0 + (d % 7) as f64).collect();
    for _ in 0..ROUNDS {
        let mut next = vec![0.0; dim];
        for vector in vectors.iter() {
            let along = project(vector, &direction);
            next.iter_mut()
                .zip(vector)
                .for_each(|(sum, value)| *sum += along * value);
        }
        let norm = project(&next, &next).sqrt();
        if norm == 0.0 {
            break;
        }
        direction = next.into_iter().map(|value| value / norm).collect();
    }
    let first = direction.iter().find(|value| **value != 0.0);
    if first.is_some_and(|&first| first < 0.0) {
        direction = direction.into_iter().map(|value| -value).collect();
    }
    let places: Vec<f64> = vectors
        .iter()
        .map(|vector| project(vector, &direction))
        .collect();
    for (vector, along) in vectors.iter_mut().zip(&places) {
        vector
            .iter_mut()
            .zip(&direction)
            .for_each(|(value, part)| *value -= along * part);
    }
    places
}

#[cfg(test)]
mod tests {
    use plmkit_contract::SequenceDigest;

    use super::*;

    fn sample(ordinals: impl Iterator<Item = u64>) -> MapSample {
        let mut sample = MapSample::default();
        for ordinal in ordinals {
            let group = if ordinal % 2 == 0 { 5.0 } else { -5.0 };
            let wobble = (ordinal % 10) as f32 / 10.0;
            let row = RowKey {
                ordinal,
                id: "P",
                start: 0,
                length: 64 + ordinal as u32 % 64,
                truncated: false,
                digest: SequenceDigest::new(&ordinal.to_le_bytes()),
                n_windows: 1,
            };
            let vector = [group + wobble, 2.0 * group, wobble, -group];
            sample.add(&row, "mean_6".parse().expect("a column"), &vector, 1.0);
        }
        sample
    }

    #[test]
    fn two_groups_lie_apart_and_parts_give_the_same_sample() {
        let whole = sample(0..5000);
        let mut parts = sample(2500..5000);
        parts.merge(sample(0..2500));
        let points = whole.points();
        assert_eq!(points, parts.points());
        assert_eq!(points.len(), ROWS);
        assert_eq!(whole.lengths, BTreeMap::from([(6, 5000)]));
        let left = points.iter().filter(|point| point.place.0 < -1.0).count();
        let right = points.iter().filter(|point| point.place.0 > 1.0).count();
        assert_eq!(left + right, ROWS);
        assert!(left > ROWS / 3 && right > ROWS / 3, "{left} {right}");
    }
}
