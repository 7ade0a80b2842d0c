//! Whether each pooled vector of a file has about the size and the direction of the others.
//!
//! The rule needs no model, and no second look at a file: sizes are counted in steps of less than 1 %, directions compared with the mean
//! of the file's first vectors. So the memory is fixed, and the result does not depend on threads.

use std::collections::BTreeMap;

use plmkit_contract::{Column, RowKey};

use crate::check::{LISTED, Tallies, Tally, add};
use crate::checks::outliers;
use crate::vector::product;
use crate::violation::Violation;

/// How many times larger or smaller than the median of the file a norm may be.
const MAX_NORM_RATIO: f64 = 10.0;
/// The least cosine to the mean vector, where nearly all vectors have one above [`USUAL_COSINE`].
const MIN_COSINE: f64 = -0.2;
const USUAL_COSINE: f64 = 0.2;
/// The vectors whose mean stands for that of the file.
const OF_MEAN: usize = 256;
/// The bits of a norm that do not count.
const IGNORED_BITS: u32 = 45;

/// The vectors of a column of the file that is being read.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// By the leading bits of the norm: the number of vectors, and the first rows with their norms.
    sizes: BTreeMap<u64, (u64, Vec<(Violation, f64)>)>,
    /// The first rows, each with its vector at length 1, until there is a direction.
    first: Vec<(Violation, Vec<f32>)>,
    /// Their mean at length 1.
    direction: Vec<f32>,
    /// The vectors of the usual direction.
    usual: u64,
    /// Those of another.
    other: Tally,
}

impl Outliers {
    /// Adds a vector that is finite and not zero. `size` is its norm; of a deviation, that with the mean.
    pub(crate) fn add(&mut self, column: Column, row: &RowKey, vector: &[f32], size: f64) {
        let (count, first) = self
            .sizes
            .entry(size.to_bits() >> IGNORED_BITS)
            .or_default();
        *count += 1;
        if first.len() < LISTED {
            first.push((row.into(), size));
        }
        if !self.direction.is_empty() {
            // A sign and a tenth need no double precision.
            let cosine = f64::from(product::<f32>(vector, &self.direction)) / size;
            return self.add_cosine(column, row, cosine);
        }
        let unit = vector.iter().map(|&value| (f64::from(value) / size) as f32);
        self.first.push((row.into(), unit.collect()));
        if self.first.len() == OF_MEAN {
            self.find_direction(column);
        }
    }

    /// Takes the mean of the first vectors as the direction. Each has length 1: a large one does not hide the others.
    fn find_direction(&mut self, column: Column) {
        let first = std::mem::take(&mut self.first);
        let dim = first.first().map_or(0, |(_, unit)| unit.len());
        let sum = |d: usize| first.iter().map(|(_, unit)| f64::from(unit[d])).sum();
        let sums: Vec<f64> = (0..dim).map(sum).collect();
        let norm = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
        self.direction = sums.iter().map(|sum| (sum / norm) as f32).collect();
        for (row, unit) in first {
            self.add_cosine(column, row, product(&unit, &self.direction));
        }
    }

    fn add_cosine(&mut self, column: Column, row: impl Into<Violation>, cosine: f64) {
        self.usual += u64::from(cosine > USUAL_COSINE);
        if cosine < MIN_COSINE {
            let problem = format_args!(
                "{column}: expected a cosine to the mean vector of its file of at least {MIN_COSINE}, found {cosine:.3}"
            );
            add(&mut self.other, row, problem);
        }
    }

    /// Judges the vectors of the file.
    pub(crate) fn finish(mut self, column: Column, tallies: &mut Tallies) {
        self.find_direction(column);
        let vectors: u64 = self.sizes.values().map(|(count, _)| count).sum();
        tallies.count(outliers::vectors, vectors);
        let mut up_to = 0;
        let mut sizes = self.sizes.iter().map(|(&size, (count, _))| (size, count));
        let median = sizes.find(|(_, count)| {
            up_to += *count;
            2 * up_to >= vectors
        });
        let median = median.map_or(0, |(size, _)| size);
        let norm = |size: u64| f64::from_bits(size << IGNORED_BITS);
        let (least, most) = (
            norm(median) / MAX_NORM_RATIO,
            norm(median + 1) * MAX_NORM_RATIO,
        );
        for (size, (count, first)) in self.sizes {
            if norm(size) > most || norm(size + 1) < least {
                tallies.count(outliers::size, count - first.len() as u64);
                for (row, size) in first {
                    let problem = format_args!(
                        "{column}: expected a norm within ten times the median of its file, found {size:.3e}"
                    );
                    tallies.add(outliers::size, row, problem);
                }
            }
        }
        if 100 * self.usual >= 99 * vectors {
            tallies.add_all(outliers::direction, self.other);
        }
    }
}

#[cfg(test)]
mod tests {
    use plmkit_contract::SequenceDigest;

    use super::*;
    use crate::vector::dot;

    const ROWS: u64 = 5000;
    const NONE: [Vec<u64>; 2] = [Vec::new(), Vec::new()];

    /// The sizes and the directions that are listed of a file with these vectors.
    fn judged(vector: impl Fn(u64) -> Vec<f32>, rows: u64) -> [Vec<u64>; 2] {
        let (mut file, mut tallies) = (Outliers::default(), Tallies::default());
        let column = "mean_6".parse().expect("a column");
        for ordinal in 0..rows {
            let row = RowKey {
                ordinal,
                id: "P",
                start: 0,
                length: 9,
                truncated: false,
                digest: SequenceDigest::default(),
                n_windows: 1,
            };
            let vector = vector(ordinal);
            file.add(column, &row, &vector, dot(&vector, &vector).sqrt());
        }
        file.finish(column, &mut tallies);
        let check = tallies.result("outliers");
        ["norm", "cosine"].map(|word| {
            let rows = check.violations.iter();
            let rows = rows.filter(|row| row.problem.contains(word));
            rows.filter_map(|row| row.ordinal).collect()
        })
    }

    /// A vector with a part that all share, and one of its own.
    fn sound(row: u64) -> Vec<f32> {
        let own = |d: u64| ((row * 7919 + d * 104_729) % 1000) as f32 / 500.0 - 1.0;
        (0..24)
            .map(|d| own(d) + if d % 2 == 0 { 1.0 } else { -1.0 })
            .collect()
    }

    #[test]
    fn a_planted_vector_is_found_wherever_it_is() {
        type Plant = fn(f32) -> f32;
        let sizes: [Plant; 5] = [
            |value| value * 1000.0,
            |value| value * 0.01,
            |_| 1e-40,
            |_| f32::from_bits(0xcdcd_cdcd),
            |value| value * 1e30,
        ];
        for planted in [0, 100, 255, 256, 257, 3000, ROWS - 1] {
            let with = |plant: Plant| {
                let vector = |row| {
                    let change = if row == planted { plant } else { |value| value };
                    sound(row).into_iter().map(change).collect()
                };
                judged(vector, ROWS)
            };
            assert_eq!(with(|value| value), NONE);
            assert_eq!(with(|value| -value), [vec![], vec![planted]]);
            for plant in sizes {
                assert_eq!(with(plant)[0], [planted]);
            }
        }
    }

    #[test]
    fn files_of_several_directions_and_of_few_rows_are_sound() {
        let opposite = |row: u64| {
            let sign = if row.is_multiple_of(50) { -1.0 } else { 1.0 };
            sound(row).iter().map(|value| sign * value).collect()
        };
        assert_eq!(judged(opposite, ROWS), NONE);
        for rows in 0..4 {
            assert_eq!(judged(sound, rows), NONE);
        }
        // The limit of a norm is ten times the median.
        let times =
            |factor: f32| judged(move |row| vec![if row == 9 { factor } else { 1.0 }; 8], 500);
        assert_eq!(times(9.9), NONE);
        assert_eq!(times(10.2), [vec![9], vec![]]);
        assert_eq!(times(0.102), NONE);
        assert_eq!(times(0.098), [vec![9], vec![]]);
    }
}
