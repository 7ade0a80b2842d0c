//! Whether each vector has the size and the direction of the others in its file: what finds gross damage of single rows.
//!
//! Whole shards are judged by computing a sample again. A row that is not in the sample is compared with the rows of its file
//! that are nearest in length, since the mean over few residues is longer than that over many. The limits leave room for honest
//! sets of any kind: peptides beside proteins, repeats, scans of variants, truncation series.

use std::ops::RangeInclusive;

use plmkit_contract::{Column, Pooling, RowKey};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::vector::{cosine, dot};
use crate::violation::Violations;

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

/// The rows that are unlike others of their file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct LookFindings {
    compared: u64,
    norms: Violations,
    directions: Violations,
}

/// The vectors of one column of one file.
#[derive(Debug)]
pub(crate) struct Look {
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

impl Look {
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

    /// Judges the rows. `id` has the ordinal, the start and the id of the row at a place.
    pub(crate) fn finish<'a>(
        mut self,
        column: Column,
        key: impl Fn(usize) -> (u64, u32, &'a str),
        findings: &mut LookFindings,
    ) {
        if self.rows.len() < MIN_ROWS {
            return;
        }
        findings.compared += self.rows.len() as u64;
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
        let mut odd: Vec<(usize, Option<f64>, f64)> = Vec::new();
        let mut norms = Vec::with_capacity(2 * NEIGHBOURS + 1);
        for (rank, row) in self.rows.iter().enumerate() {
            let end = (rank + NEIGHBOURS + 1).min(self.rows.len());
            let neighbours = &self.rows[rank.saturating_sub(NEIGHBOURS)..end];
            norms.clear();
            norms.extend(neighbours.iter().map(|row| row.norm));
            let Some(usual) = median(&mut norms) else {
                continue;
            };
            let ratio = row.norm / usual;
            if !(1.0 / MAX_RATIO..=MAX_RATIO).contains(&ratio) {
                odd.push((row.place, None, ratio));
            } else if least.is_some_and(|least| row.cosine < least) {
                odd.push((row.place, Some(row.cosine), ratio));
            }
        }
        odd.sort_unstable_by_key(|&(place, ..)| place);
        for (place, cosine, ratio) in odd {
            let (ordinal, start, id) = key(place);
            let (kind, problem) = match cosine {
                None => (
                    &mut findings.norms,
                    format!(
                        "{column}: the norm is {ratio:.2e} times that of proteins of about its length"
                    ),
                ),
                Some(cosine) => (
                    &mut findings.directions,
                    format!("{column}: cosine {cosine:.3} with the centre of the file"),
                ),
            };
            kind.add(Some(ordinal), Some(start), Some(id), problem);
        }
    }
}

impl LookFindings {
    pub(crate) fn merge(&mut self, other: Self) {
        self.compared += other.compared;
        self.norms.merge(other.norms);
        self.directions.merge(other.directions);
    }

    /// The check `outliers`.
    pub(crate) fn finish(self) -> Check {
        if self.compared == 0 {
            return Check::skipped(
                "outliers",
                "no file has 8 vectors to compare with each other",
            );
        }
        let summary = format!(
            "{} of {} vectors of another size than others of their length, {} of another direction",
            self.norms.count, self.compared, self.directions.count
        );
        Check::judged(
            "outliers",
            summary,
            [("compared", self.compared)],
            [("norms", self.norms), ("directions", self.directions)],
        )
    }
}

/// The norm that both moments of a layer have together: that of its tokens, whatever a protein's share of each.
pub(crate) fn of_both_moments(mean: &[f32], std: &[f32]) -> f64 {
    (dot(mean, mean) + dot(std, std)).sqrt()
}

/// The median, the lower of two; `None` of nothing.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}
