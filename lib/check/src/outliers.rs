//! Whether each pooled vector of a file has about the size and the direction of the others.
//!
//! The rule needs no model, and no second look at a file: sizes are counted in steps of less than 1 %, directions compared with the mean
//! of the file's first vectors. So the memory is fixed, and the result does not depend on threads.

use std::collections::BTreeMap;

use plmkit_contract::{Column, RowKey};

use crate::check::{Tallies, Tally, add};
use crate::checks::outliers;
use crate::vector::dot;
use crate::violation::Violation;

/// How many times larger or smaller than the median of the file a norm may be.
const MOST: f64 = 10.0;
/// The least cosine to the mean vector, where nearly all vectors have one above [`USUAL`].
const LEAST: f64 = -0.2;
const USUAL: f64 = 0.2;
/// The vectors whose mean stands for that of the file.
const FIRST: usize = 256;
/// The bits of a norm that do not count.
const STEP: u32 = 45;

/// The vectors of a column of the file that is being read.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    /// By the leading bits of the norm.
    sizes: BTreeMap<u64, Tally>,
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
    pub(crate) fn add(&mut self, row: &RowKey, vector: &[f32], size: f64) {
        let same = self.sizes.entry(size.to_bits() >> STEP).or_default();
        add(same, row, format_args!("{size:.3e}"));
        if !self.direction.is_empty() {
            let cosine = f64::from(dot32(vector, &self.direction)) / size;
            return self.add_cosine(row, cosine);
        }
        let unit = vector.iter().map(|&value| (f64::from(value) / size) as f32);
        self.first.push((row.into(), unit.collect()));
        if self.first.len() == FIRST {
            self.find_direction();
        }
    }

    /// Takes the mean of the first vectors as the direction. Each has length 1: a large one does not hide the others.
    fn find_direction(&mut self) {
        let first = std::mem::take(&mut self.first);
        let dim = first.first().map_or(0, |(_, unit)| unit.len());
        let sum = |d: usize| first.iter().map(|(_, unit)| f64::from(unit[d])).sum();
        let sums: Vec<f64> = (0..dim).map(sum).collect();
        let norm = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
        self.direction = sums.iter().map(|sum| (sum / norm) as f32).collect();
        for (row, unit) in first {
            self.add_cosine(row, dot(&unit, &self.direction));
        }
    }

    fn add_cosine(&mut self, row: impl Into<Violation>, cosine: f64) {
        if cosine > USUAL {
            self.usual += 1;
        } else if cosine < LEAST {
            add(&mut self.other, row, format_args!("{cosine:.3}"));
        }
    }

    /// Judges the vectors of a column of a file.
    pub(crate) fn finish(mut self, column: Column, file: &str, tallies: &mut Tallies) {
        self.find_direction();
        let vectors: u64 = self.sizes.values().map(|(count, _)| count).sum();
        tallies.count(outliers::vectors, vectors);
        let mut up_to = 0;
        let median = self.sizes.iter().find(|(_, (count, _))| {
            up_to += count;
            2 * up_to >= vectors
        });
        let Some((&median, _)) = median else {
            return;
        };
        let norm = |bits: u64| f64::from_bits(bits << STEP);
        let (least, most) = (norm(median) / MOST, norm(median + 1) * MOST);
        for (size, mut others) in self.sizes {
            if norm(size) > most || norm(size + 1) < least {
                for row in &mut others.1 {
                    row.problem = format!(
                        "{column}: expected a norm from {least:.3e} to {most:.3e}, a tenth to ten times the median of {file}, found {}",
                        row.problem
                    );
                }
                tallies.add_all(outliers::size, others);
            }
        }
        if 100 * self.usual >= 99 * vectors {
            for row in &mut self.other.1 {
                row.problem = format!(
                    "{column}: expected a cosine to the mean vector of {file} of at least {LEAST}, found {}",
                    row.problem
                );
            }
            tallies.add_all(outliers::direction, self.other);
        }
    }
}

/// The scalar product in single precision: a sign and a tenth need no more.
fn dot32(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0.0_f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest: f32 = rest.map(|(x, y)| x * y).sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
