//! Whether each vector has the size and the direction of the others in its file: what finds gross damage of single rows.
//!
//! Whole shards are judged by computing a sample again. A row that is not in the sample is compared with the rows of its file
//! that are nearest in length, since the mean over few residues is longer than that over many. The limits leave room for honest
//! sets of any kind: peptides beside proteins, repeats, scans of variants, truncation series.

use std::ops::RangeInclusive;

use plmkit_contract::{Column, Pooling, RowKey};

use crate::check::Tally;
use crate::vector::{cosine, dot, median};

/// Vectors from which the centre of a column is estimated, and the fewest that are judged.
const CENTRE_ROWS: usize = 512;
const MIN_ROWS: usize = 8;

/// Rows nearest in length that a norm is compared with: so many before and after.
const NEIGHBOURS: usize = 50;

/// How many times longer or shorter a vector may be than the median of its neighbours.
const MAX_RATIO: f64 = 5.0;

/// The least cosine with the centre, as a share of the median cosine: that of a vector with another sign is negative, that of
/// permuted channels near 0. Among 20,000 real proteins the smallest share was 0.5.
const LEAST_COSINE: f64 = 0.25;

/// The cosine with the centre that nine in ten vectors have where they share a direction.
const COMMON_DIRECTION: f64 = 0.5;

/// Dimensions that a direction needs: in few, vectors share one by chance.
const MIN_DIMENSIONS: usize = 32;

/// The median norms that a model may give. Layer norms keep values of the order of 1; a broken one leaves its epsilon.
const SIZES: RangeInclusive<f64> = 1e-3..=1e6;

/// The check `outliers` of one column of one file: its vectors.
#[derive(Debug)]
pub(crate) struct Outliers {
    pool: Pooling,
    /// The median of each dimension over the first vectors: `(dim)`.
    centre: Vec<f32>,
    rows: Vec<Seen>,
}

/// A vector that was seen.
#[derive(Debug)]
struct Seen {
    /// The row's place in the file.
    place: usize,
    residues: u32,
    norm: f64,
    /// With the centre.
    cosine: f64,
}

impl Outliers {
    /// A column of which `sample` are some vectors of `dim` values.
    pub(crate) fn new(pool: Pooling, sample: &[&[f32]], dim: usize) -> Self {
        let step = sample.len().div_ceil(CENTRE_ROWS).max(1);
        let finite = sample.iter().step_by(step);
        let finite = finite.filter(|vector| vector.iter().all(|value| value.is_finite()));
        let finite: Vec<&[f32]> = finite.copied().collect();
        let mut values = Vec::with_capacity(finite.len());
        let centre = (0..dim).map(|d| {
            values.clear();
            values.extend(finite.iter().map(|vector| f64::from(vector[d])));
            median(&mut values).unwrap_or_default() as f32
        });
        Self {
            pool,
            centre: centre.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds the vector, finite and not zero, of the row at a place of the file. `norm` is its norm; of deviations, which may be as
    /// small as they like, that of both moments of the layer ([`of_both_moments`]).
    pub(crate) fn add(&mut self, place: usize, row: &RowKey, vector: &[f32], norm: f64) {
        self.rows.push(Seen {
            place,
            residues: row.length.saturating_sub(row.start),
            norm,
            cosine: cosine(vector, &self.centre).unwrap_or(1.0),
        });
    }

    /// What is implausible about the median norm.
    pub(crate) fn implausible(&self) -> Option<String> {
        let mut norms: Vec<f64> = self.rows.iter().map(|row| row.norm).collect();
        let median = median(&mut norms)?;
        (!SIZES.contains(&median)).then(|| {
            let (least, most) = (SIZES.start(), SIZES.end());
            format!("{median:.1e}: expected {least:.0e} to {most:.0e}")
        })
    }

    /// Judges the rows. `key` has the ordinal, the start and the id of the row at a place.
    pub(crate) fn finish<'a>(
        mut self,
        column: Column,
        key: impl Fn(usize) -> (u64, u32, &'a str),
        tally: &mut Tally,
    ) {
        if self.rows.len() < MIN_ROWS {
            return;
        }
        tally.count("compared", self.rows.len() as u64);
        let mut cosines: Vec<f64> = self.rows.iter().map(|row| row.cosine).collect();
        cosines.sort_unstable_by(f64::total_cmp);
        let share_direction =
            cosines[cosines.len() / 10] >= COMMON_DIRECTION && self.centre.len() >= MIN_DIMENSIONS;
        let usual = median(&mut cosines).filter(|_| share_direction);
        // The largest values are mostly positive, so that those of a repeat, or permuted, are not far.
        let least = usual.and_then(|usual| match self.pool {
            Pooling::Mean | Pooling::Bos => Some(LEAST_COSINE * usual),
            Pooling::Max => Some(0.0),
            // The deviations of a repeat point anywhere.
            Pooling::Std => None,
        });
        self.rows.sort_by_key(|row| (row.residues, row.place));
        let mut odd: Vec<(usize, &'static str, String)> = Vec::new();
        let mut norms = Vec::with_capacity(2 * NEIGHBOURS + 1);
        for (rank, row) in self.rows.iter().enumerate() {
            let end = (rank + NEIGHBOURS + 1).min(self.rows.len());
            let neighbours = &self.rows[rank.saturating_sub(NEIGHBOURS)..end];
            norms.clear();
            norms.extend(neighbours.iter().map(|row| row.norm));
            let Some(usual) = median(&mut norms) else {
                continue;
            };
            let (ratio, cosine) = (row.norm / usual, row.cosine);
            if !(1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
                let problem = format!(
                    "{column}: the norm is {ratio:.2e} times that of proteins of about its length"
                );
                odd.push((row.place, "norms", problem));
            } else if least.is_some_and(|least| cosine < least) {
                let problem = format!("{column}: cosine {cosine:.3} with the centre of the file");
                odd.push((row.place, "directions", problem));
            }
        }
        odd.sort_unstable_by_key(|&(place, ..)| place);
        for (place, kind, problem) in odd {
            tally.add(kind, key(place), problem);
        }
    }
}

/// The norm that both moments of a layer have together: that of its tokens, whatever a protein's share of each.
pub(crate) fn of_both_moments(mean: &[f32], std: &[f32]) -> f64 {
    (dot(mean, mean) + dot(std, std)).sqrt()
}
